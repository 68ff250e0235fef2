package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/queue"
)

// A sweep has GitHub send again the webhooks that never reached the inbox: those
// that came while nobody listened, and those that somebody in between answered
// in our place. GitHub itself sends each once.
//
// Whether a webhook is known is the store's to say, so any number of servers may
// sweep: a webhook is asked for at most once in a while, through a limit that
// they share, and each time that it fails the while is twice as long.
type sweep struct {
	hub interface {
		Deliveries(ctx context.Context, since time.Time) ([]github.Delivery, error)
		Redeliver(ctx context.Context, id int64) error
	}
	store interface {
		List(ctx context.Context, q queue.Query) ([]queue.Job, error)
		Take(ctx context.Context, bucket string, n int64, limit queue.Limit) (time.Duration, error)
	}
	events []string // those that a handler takes; others need not come
	log    *slog.Logger

	mu     sync.Mutex // one pass at a time; owns the two times
	since  time.Time  // nothing older was missing at the last pass; zero before the first
	oldest time.Time  // the store was in use by then: the start of this process, until an older delivery is seen
}

const (
	reconcileEvery = 5 * time.Minute

	sweepEvery = 3 * time.Minute
	sweepReach = 3 * 24 * time.Hour // how long GitHub keeps a delivery
	sweepAgain = 5 * time.Minute    // until a webhook that was asked for is asked for again, at first
	sweepCap   = 100                // webhooks that one pass asks for
	sweepSlack = 15 * time.Minute   // clocks differ, and GitHub lists an attempt some time after it began
)

// run sweeps until ctx ends. A pass that fails is made up for by the next.
func (s *sweep) run(ctx context.Context) {
	every(ctx, sweepEvery, func() {
		asked, err := s.once(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			s.log.WarnContext(ctx, "sweep for missed webhooks", "asked", asked, "error", err)
		case asked > 0:
			s.log.InfoContext(ctx, "missed webhooks are asked for again", "asked", asked)
		}
	})
}

// reconcile ends what there is nothing left to do for, until ctx ends.
func (a *App) reconcile(ctx context.Context) {
	every(ctx, reconcileEvery, func() {
		if err := a.Reconcile(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "look whether what is open is still wanted", "error", err)
		}
	})
}

// Reconcile cancels once the open builds and reviews whose ticket, pull request,
// repository or installation is gone. Run does so at its start and every few minutes.
func (a *App) Reconcile(ctx context.Context) error { return a.handlers.Reconcile(ctx) }

// every calls fn now and then at each interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, fn func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		fn()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// once is one pass. It returns how many webhooks it asked for.
func (s *sweep) once(ctx context.Context) (asked int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	since := now.Add(-sweepReach)
	if s.since.After(since) {
		since = s.since
	}
	attempts, err := s.hub.Deliveries(ctx, since)
	if err != nil {
		return 0, err
	}
	missed, err := s.missed(ctx, attempts)
	if err != nil {
		return 0, err
	}
	for _, m := range missed {
		if asked == sweepCap || now.Before(m.due()) {
			continue
		}
		wait, err := s.store.Take(ctx, "redeliver/"+m.last.GUID, 1, queue.Limit{{Max: 1, Per: sweepAgain}})
		if err != nil {
			return asked, fmt.Errorf("note that %s is asked for: %w", m.last.GUID, err)
		}
		if wait > 0 {
			continue // it is under way
		}
		if err := s.hub.Redeliver(ctx, m.last.ID); err != nil {
			return asked, err
		}
		asked++
	}
	s.since = now
	if len(missed) > 0 {
		s.since = missed[0].first
	}
	s.since = s.since.Add(-sweepSlack)
	return asked, nil
}

// A webhook is what is known of one GUID.
type webhook struct {
	first    time.Time // its oldest attempt that is listed
	last     github.Delivery
	attempts int
	accepted bool // by whoever answered
}

// due is when to ask for it: at once after the first attempt, and after each
// other that failed twice as long as before.
func (w webhook) due() time.Time {
	if w.attempts < 2 {
		return time.Time{}
	}
	return w.last.At.Add(sweepAgain << min(w.attempts-2, 9))
}

// missed are the webhooks that the store does not have and that somebody would
// act on, oldest first.
//
// One that was answered with 2xx while this store was in use is missed too:
// somebody in between answered. One that is older than that was taken in by the
// store before this one, and to have it again would be to do everything again.
func (s *sweep) missed(ctx context.Context, attempts []github.Delivery) ([]webhook, error) {
	all := map[string]*webhook{}
	for _, a := range attempts { // newest first
		w := all[a.GUID]
		if w == nil {
			w = &webhook{last: a}
			all[a.GUID] = w
		}
		w.first, w.attempts, w.accepted = a.At, w.attempts+1, w.accepted || a.Accepted
	}
	known, err := s.known(ctx, slices.Sorted(maps.Keys(all)))
	if err != nil {
		return nil, err
	}
	for _, created := range known {
		if created.Before(s.oldest) {
			s.oldest = created
		}
	}
	var out []webhook
	for guid, w := range all {
		_, have := known[guid]
		older := w.accepted && w.first.Before(s.oldest)
		if !have && !older && slices.Contains(s.events, w.last.Event) {
			out = append(out, *w)
		}
	}
	slices.SortFunc(out, func(a, b webhook) int {
		return cmp.Or(a.first.Compare(b.first), cmp.Compare(a.last.ID, b.last.ID))
	})
	return out, nil
}

// known tells which GUIDs the store has, and since when.
func (s *sweep) known(ctx context.Context, guids []string) (map[string]time.Time, error) {
	known := map[string]time.Time{}
	for some := range slices.Chunk(guids, 100) {
		jobs, err := s.store.List(ctx, queue.Query{IDs: some, Limit: len(some)})
		if err != nil {
			return nil, fmt.Errorf("look up deliveries: %w", err)
		}
		for _, j := range jobs {
			known[j.ID] = j.Created
		}
	}
	return known, nil
}
