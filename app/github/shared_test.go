package github

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// gitHub counts what comes, and refuses what it is told to.
type gitHub struct {
	seen   int
	refuse *http.Response // the next request; nil refuses nothing
}

func (g *gitHub) RoundTrip(*http.Request) (*http.Response, error) {
	g.seen++
	if resp := g.refuse; resp != nil {
		g.refuse = nil
		return resp, nil
	}
	return answer(http.StatusOK, "{}"), nil
}

// worker is a process of its own: it shares limits, and nothing else.
func worker(limits Limiter) *App { return &App{o: Options{Limits: limits, Log: quiet}} }

// wantHeld checks that a request is not sent, and that it may come after so long.
func wantHeld(t *testing.T, err error, wait time.Duration) {
	t.Helper()
	later, ok := errors.AsType[*Later](err)
	if !ok || (time.Until(later.At)-wait).Abs() > time.Second {
		t.Errorf("%v, want that it waits for %s", err, wait)
	}
}

// What one process is told, all of them heed, for that installation, until its
// time.
func TestGitHubsWordReachesEveryProcess(t *testing.T) {
	for name, c := range map[string]struct {
		method string // what is refused
		refuse func() *http.Response
		wait   time.Duration
	}{
		"a write is refused": {http.MethodPost, func() *http.Response { return answer(http.StatusForbidden, "{}", "Retry-After", "30") }, 30 * time.Second},
		"a read is refused":  {http.MethodGet, func() *http.Response { return answer(http.StatusTooManyRequests, "{}", "Retry-After", "90") }, 90 * time.Second},
		"the quota is used up": {http.MethodGet, func() *http.Response {
			return answer(http.StatusOK, "{}", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+1200, 10))
		}, 20 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, limits := &gitHub{}, windows{}
				a, b := worker(limits).careful(7)(hub), worker(limits)
				theirs, another := b.careful(7)(hub), b.careful(8)(hub)
				for _, each := range []http.RoundTripper{theirs, another} {
					if err := send(t.Context(), t, each, "GET", "/x"); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(lookEvery)
				hub.refuse = c.refuse()
				err := send(t.Context(), t, a, c.method, "/x")
				if err == nil {
					err = send(t.Context(), t, a, c.method, "/x")
				}
				wantHeld(t, err, c.wait)
				seen := hub.seen
				for range 3 {
					for _, method := range []string{"POST", "GET", "PATCH"} {
						wantHeld(t, send(t.Context(), t, theirs, method, "/x"), c.wait)
					}
				}
				if hub.seen != seen {
					t.Errorf("%d requests came all the same", hub.seen-seen)
				}
				for _, method := range []string{"POST", "GET"} {
					if err := send(t.Context(), t, another, method, "/x"); err != nil {
						t.Errorf("another installation: %v", err)
					}
				}
				time.Sleep(c.wait + time.Second)
				for _, each := range []http.RoundTripper{a, theirs} {
					for _, method := range []string{"GET", "POST"} {
						if err := send(t.Context(), t, each, method, "/x"); err != nil {
							t.Errorf("after its time: %v", err)
						}
					}
				}
			})
		})
	}
}

// The same by way of Redis, where the processes' clocks do not count.
func TestGitHubsWordByWayOfRedis(t *testing.T) {
	t.Parallel()
	r, hub := queuetest.StartRedis(t), &gitHub{}
	var both []http.RoundTripper
	for range 2 {
		s, err := queue.OpenRedis(t.Context(), queue.RedisOptions{URL: r.URL(), Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() //nolint:errcheck // nothing is left to settle
		both = append(both, worker(s).careful(7)(hub))
	}
	hub.refuse = answer(http.StatusForbidden, "{}", "Retry-After", "30")
	wantHeld(t, send(t.Context(), t, both[0], "POST", "/x"), 30*time.Second)
	for _, method := range []string{"GET", "POST"} {
		wantHeld(t, send(t.Context(), t, both[1], method, "/x"), 30*time.Second)
	}
	if hub.seen != 1 {
		t.Errorf("%d requests came", hub.seen)
	}
}

// away is a store that does not answer.
type away struct{ asked int }

func (a *away) Take(context.Context, string, int64, queue.Limit) (time.Duration, error) {
	a.asked++
	return 0, errors.New("connection refused")
}

func TestWithoutTheStoreOnesOwnWordCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := &gitHub{}
		ours := worker(&away{}).careful(7)(hub)
		if err := send(t.Context(), t, ours, "GET", "/x"); err != nil {
			t.Fatalf("a read needs no store: %v", err)
		}
		hub.refuse = answer(http.StatusForbidden, "{}", "Retry-After", "30")
		for range 3 {
			wantHeld(t, send(t.Context(), t, ours, "GET", "/x"), 30*time.Second)
		}
		if hub.seen != 2 {
			t.Errorf("%d requests came", hub.seen)
		}
	})
}

// counting counts calls of the store: turns of writes, and looks before reads.
type counting struct {
	windows
	turns, looks int
}

func (c *counting) Take(ctx context.Context, bucket string, n int64, limit queue.Limit) (time.Duration, error) {
	if n == 0 {
		c.looks++
	} else {
		c.turns++
	}
	return c.windows.Take(ctx, bucket, n, limit)
}

// A write asks the store no more often for being held by others' words, a read
// once, and many reads at a time do not ask for each.
func TestWhatGitHubsWordCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := &counting{windows: windows{}}
		ours := worker(limits).careful(7)(&gitHub{})
		for _, method := range []string{"POST", "PATCH", "DELETE"} {
			if err := send(t.Context(), t, ours, method, "/x"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if limits.turns != 4 || limits.looks != 0 { // a create takes of two limits
			t.Errorf("three writes: %d turns and %d looks", limits.turns, limits.looks)
		}
		for range 100 {
			if err := send(t.Context(), t, ours, "GET", "/x"); err != nil {
				t.Fatal(err)
			}
		}
		if limits.turns != 4 || limits.looks != 1 {
			t.Errorf("a hundred reads at once: %d looks", limits.looks)
		}
	})
}
