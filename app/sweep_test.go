package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/queue"
)

// A postOffice is GitHub's list of attempts, newest first, and what it is asked for.
type postOffice struct {
	attempts []github.Delivery
	asked    []string
}

func (p *postOffice) Deliveries(_ context.Context, since time.Time) ([]github.Delivery, error) {
	at := slices.IndexFunc(p.attempts, func(d github.Delivery) bool { return d.At.Before(since) })
	if at < 0 {
		at = len(p.attempts)
	}
	return slices.Clone(p.attempts[:at]), nil
}

func (p *postOffice) Redeliver(_ context.Context, id int64) error {
	at := slices.IndexFunc(p.attempts, func(d github.Delivery) bool { return d.ID == id })
	p.asked = append(p.asked, p.attempts[at].GUID)
	return nil
}

// sent notes an attempt: "failed" or "accepted", of an event, some time ago.
func (p *postOffice) sent(guid, event, how string, ago time.Duration) {
	p.attempts = append([]github.Delivery{{
		ID: int64(len(p.attempts) + 1), GUID: guid, Event: event, At: time.Now().Add(-ago), Accepted: how == "accepted",
	}}, p.attempts...)
}

func newSweep(t *testing.T, p *postOffice) *sweep {
	t.Helper()
	store, err := queue.OpenSQLite(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &sweep{hub: p, store: store, events: []string{"issues"}, log: slog.New(slog.DiscardHandler), oldest: time.Now()}
}

func (s *sweep) has(t *testing.T, guid string) {
	t.Helper()
	if _, _, err := s.store.(*queue.SQLite).Put(t.Context(), queue.Job{ID: guid, Kind: inbox.Kind}); err != nil {
		t.Fatal(err)
	}
}

func TestSweepAsksForWhatIsMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent string // guid event how ago, one attempt a line, oldest first
		has  string
		want string
	}{
		"nothing was sent": {},
		"it is here":       {"a issues accepted 1m", "a", ""},
		"it is here, though GitHub gave up on us":  {"a issues failed 1m", "a", ""},
		"nobody answered":                          {"a issues failed 1m", "", "a"},
		"two, the older first":                     {"a issues failed 2m\nb issues failed 1m", "", "a b"},
		"an event that nobody handles":             {"a watch failed 1m", "", ""},
		"the second attempt came":                  {"a issues failed 2m\na issues accepted 1m", "a", ""},
		"the second attempt failed just now":       {"a issues failed 9m\na issues failed 1m", "", ""},
		"the second attempt failed some time ago":  {"a issues failed 19m\na issues failed 6m", "", "a"},
		"the third failed six minutes ago":         {"a issues failed 29m\na issues failed 16m\na issues failed 6m", "", ""},
		"two days ago":                             {"a issues failed 48h", "", "a"},
		"four days ago":                            {"a issues failed 96h", "", ""},
		"a store before this one took it":          {"a issues accepted 2h", "", ""},
		"a store before this one missed it":        {"a issues failed 2h", "", "a"},
		"somebody else answered a minute from now": {"a issues accepted -1m", "", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &postOffice{}
			s := newSweep(t, p)
			for line := range strings.Lines(c.sent) {
				f := strings.Fields(line)
				ago, err := time.ParseDuration(f[3])
				if err != nil {
					t.Fatal(err)
				}
				p.sent(f[0], f[1], f[2], ago)
			}
			for guid := range strings.FieldsSeq(c.has) {
				s.has(t, guid)
			}
			asked, err := s.once(t.Context())
			if err != nil || asked != len(p.asked) || strings.Join(p.asked, " ") != c.want {
				t.Errorf("asked for %q (%d), %v; want %q", p.asked, asked, err, c.want)
			}
			if asked, err = s.once(t.Context()); asked > 0 || err != nil {
				t.Errorf("the second pass asked for %d, %v", asked, err)
			}
		})
	}
}

// Two servers that share a store ask once, and a pass asks for so many and no more.
func TestSweepsShareAndAreBounded(t *testing.T) {
	t.Parallel()
	p := &postOffice{}
	one := newSweep(t, p)
	two := &sweep{hub: p, store: one.store, events: one.events, log: one.log, oldest: one.oldest}
	for i := range sweepCap + 20 {
		p.sent(fmt.Sprintf("guid-%03d", i), "issues", "failed", time.Hour-time.Duration(i)*time.Second)
	}
	for i, want := range []int{sweepCap, 20, 0} {
		asked, err := []*sweep{one, two, one}[i].once(t.Context())
		if err != nil || asked != want {
			t.Errorf("pass %d asked for %d, %v; want %d", i, asked, err, want)
		}
	}
	slices.Sort(p.asked)
	if len(slices.Compact(p.asked)) != sweepCap+20 {
		t.Errorf("asked for %d of %d", len(slices.Compact(p.asked)), sweepCap+20)
	}
}

// A duty goes on at its interval, also after a pass that took long, and ends with
// its context.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		var at []time.Duration
		every(ctx, time.Minute, func() {
			at = append(at, time.Since(begin))
			if len(at) == 3 {
				cancel()
			}
		})
		if !slices.Equal(at, []time.Duration{0, time.Minute, 2 * time.Minute}) {
			t.Errorf("ran at %s", at)
		}
	})
}
