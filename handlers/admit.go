package handlers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/queue"
)

const perDay = 24 * time.Hour

// deaf reports whether nothing that the account says is listened to: it is the
// App itself, in any of the spellings that GitHub uses for one, or a bot that
// is not on the list. An account that cannot be read is a bot.
func (h *Handlers) deaf(u *github.User) bool {
	slug := slugOf(u)
	return slug == "" || slug == strings.ToLower(h.Slug) || machine(u) && !slices.Contains(h.Chat.Bots, slug)
}

// machine reports whether an account is a bot's.
func machine(u *github.User) bool {
	login := strings.ToLower(u.GetLogin())
	return login == "" || u.GetType() == "Bot" || strings.HasSuffix(login, "[bot]") || strings.HasPrefix(login, "app/")
}

// slugOf is the login in lower case, without what marks an App's.
func slugOf(u *github.User) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(u.GetLogin()), "app/"), "[bot]")
}

// admit counts a command against what its account may type. The first command
// over that gets an answer, those that follow within the same time do not:
// whoever types a thousand commands cannot make the App write a thousand
// comments. What was found the first time counts when the delivery is handled
// again.
func (h *Handlers) admit(ctx context.Context, t trigger) (Decision, error) {
	rate := queue.Rate{Max: int64(h.Chat.PerHour), Per: time.Hour}
	if t.by.Bot {
		rate = queue.Rate{Max: int64(h.Chat.BotsPerDay), Per: perDay}
	}
	if rate.Max == 0 && !t.by.Bot {
		return Decision{}, nil
	}
	return h.Decide(ctx, "admission", func(ctx context.Context) (Decision, error) {
		return h.count(ctx, t, rate)
	})
}

// turnAway answers a command that is over what its account may type, or does
// not.
func (h *Handlers) turnAway(ctx context.Context, t trigger, d Decision) error {
	if d.Answer == "" {
		return nil
	}
	return h.answer(ctx, t, refused, d.Answer)
}

func (h *Handlers) count(ctx context.Context, t trigger, rate queue.Rate) (Decision, error) {
	account := fmt.Sprintf("%d/%d", t.repo.Installation, t.by.ID)
	wait, err := h.take(ctx, "commands/"+account, rate)
	if err != nil || wait == 0 {
		return Decision{}, err
	}
	told, err := h.take(ctx, "commands-told/"+account, queue.Rate{Max: 1, Per: rate.Per})
	if err != nil || told > 0 {
		return Decision{Over: true}, err
	}
	return Decision{Over: true, Answer: overText(t, rate)}, nil
}

func (h *Handlers) take(ctx context.Context, bucket string, rate queue.Rate) (time.Duration, error) {
	if rate.Max < 1 {
		return rate.Per, nil // none is allowed
	}
	wait, err := h.Jobs.Take(ctx, bucket, 1, queue.Limit{rate})
	if err != nil {
		return 0, fmt.Errorf("count a command: %w", err)
	}
	return wait, nil
}
