package github

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

//go:embed testdata/build.traffic
var traffic string

// A spoken is one request of recorded traffic.
type spoken struct {
	after        time.Duration // the one before
	app          bool          // by the App's key
	method, path string
}

// recorded reads the traffic of one build: of its delivery, and of its own.
func recorded(t *testing.T) (delivery, build []spoken) {
	t.Helper()
	into := &delivery
	for line := range strings.Lines(traffic) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line == "delivery" || strings.HasPrefix(line, "#"):
		case line == "build":
			into = &build
		default:
			var s spoken
			var ms int
			var who string
			if _, err := fmt.Sscan(line, &ms, &who, &s.method, &s.path); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			s.after, s.app = time.Duration(ms)*time.Millisecond, who == "app"
			*into = append(*into, s)
		}
	}
	if len(delivery) < 5 || len(build) < 20 {
		t.Fatalf("%d and %d requests are recorded", len(delivery), len(build))
	}
	return delivery, build
}

// A referee sees the requests of one installation as GitHub would, and knows
// GitHub's limits. It shares no code with what keeps them.
//
// https://docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api
// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
type referee struct {
	mu        sync.Mutex
	last      time.Time // mutation
	created   []time.Time
	quiet     time.Time // nothing may come before
	spread    time.Time // but for the reads of processes that have not looked yet
	mutations int
	fouls     []string
}

func (f *referee) see(r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	foul := func(format string, args ...any) {
		f.fouls = append(f.fouls, fmt.Sprintf("%s %s: ", r.Method, r.URL.Path)+fmt.Sprintf(format, args...))
	}
	if now.Before(f.quiet) && (!now.Before(f.spread) || r.Method != http.MethodGet) {
		foul("%s before the time that GitHub named", f.quiet.Sub(now))
	}
	if r.Method == http.MethodGet || r.URL.Path == "/installation/token" {
		return
	}
	f.mutations++
	if since := now.Sub(f.last); since < time.Second {
		foul("%s after another mutation", since)
	}
	f.last = now
	if r.Method != http.MethodPost {
		return
	}
	f.created = append(f.created, now)
	for _, limit := range []struct {
		most int
		per  time.Duration
	}{{80, time.Minute}, {500, time.Hour}} {
		n := 0
		for _, at := range f.created {
			if now.Sub(at) < limit.per {
				n++
			}
		}
		if n > limit.most {
			foul("%d requests that create content within %s", n, limit.per)
		}
	}
}

func (f *referee) silence(until, spread time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiet, f.spread = until, spread
}

// A storm is many builds at once, on one installation.
type storm struct {
	limits    Limiter
	builds    int
	processes int                        // on which they are; 0 is 1
	refuse    func(n int) *http.Response // the answer to the n-th request, or nil: it succeeds
	alone     bool                       // each client keeps its manners to itself: wrong
}

// rage replays the recorded traffic of every build at once, in virtual time, as
// the queue would run it: what is told to come back later does so then.
func (s storm) rage(t *testing.T) (*referee, time.Duration) {
	t.Helper()
	s.limits = &oneByOne{limits: s.limits}
	ref, start := &referee{}, time.Now()
	var apps []*App // one for each process
	for range max(s.processes, 1) {
		apps = append(apps, &App{o: Options{Limits: s.limits, Log: quiet}})
	}
	wire := s.wire(t, ref)
	key := apps[0].careful(0)(roundTrip(func(*http.Request) (*http.Response, error) { return answer(http.StatusCreated, "{}"), nil }))
	speak := func(app *App, say spoken) error {
		time.Sleep(say.after)
		switch {
		case say.app:
			return send(t.Context(), t, key, say.method, say.path)
		case s.alone:
			return send(t.Context(), t, carefulTransport{manners: newManners(s.limits, quiet, 7), next: wire}, say.method, say.path)
		}
		return send(t.Context(), t, app.careful(7)(wire), say.method, say.path) // as with a token of its own
	}
	delivery, build := recorded(t)
	var all sync.WaitGroup
	for i := range s.builds {
		app := apps[i%len(apps)]
		all.Go(func() {
			for at := 0; at < len(delivery); at++ {
				if wait(t, speak(app, delivery[at])) {
					at = -1
				}
			}
			for at := 0; at < len(build); at++ {
				if wait(t, speak(app, build[at])) {
					at--
				}
			}
		})
	}
	all.Wait()
	return ref, time.Since(start)
}

// wire is GitHub and the way there.
func (s storm) wire(t *testing.T, ref *referee) http.RoundTripper {
	sent := 0
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		ref.see(r)
		ref.mu.Lock()
		sent++
		n := sent
		ref.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		if s.refuse == nil {
			return answer(http.StatusOK, "{}"), nil
		}
		resp := s.refuse(n)
		if resp == nil {
			return answer(http.StatusOK, "{}"), nil
		}
		spread := time.Now()
		if s.processes > 1 {
			spread = spread.Add(lookEvery)
		}
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil {
			reset, err := strconv.ParseInt(resp.Header.Get("X-RateLimit-Reset"), 10, 64)
			if err != nil {
				t.Errorf("a refusal without a time: %v", err)
			}
			ref.silence(time.Unix(reset, 0), spread)
			return resp, nil
		}
		ref.silence(time.Now().Add(time.Duration(seconds)*time.Second), spread)
		return resp, nil
	})
}

// wait waits as long as a Later says, and reports whether there was one.
func wait(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return false
	}
	later, ok := errors.AsType[*Later](err)
	if !ok {
		t.Errorf("a request failed: %v", err)
		return false
	}
	time.Sleep(time.Until(later.At))
	return true
}

// granted is a pacer that is broken: everybody may write at once.
type granted struct{}

func (granted) Take(context.Context, string, int64, queue.Limit) (time.Duration, error) {
	return 0, nil
}

// refusals are answers of GitHub in the middle of it all.
func refusals(n int) *http.Response {
	switch n {
	case 40:
		return answer(http.StatusForbidden, "{}", "Retry-After", "45")
	case 150:
		return answer(http.StatusTooManyRequests, "{}", "Retry-After", "90")
	case 400:
		return answer(http.StatusForbidden, "{}", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+600, 10))
	}
	return nil
}

// Twenty builds at once stay within what GitHub asks of an installation, whatever
// GitHub answers in between, and come to their end about as soon as that allows.
// The referee is no decoration: with a broken pacer, and where a refusal is only
// heard by whoever got it, it blows the whistle.
func TestTwentyBuildsAtOnceKeepGitHubsLimits(t *testing.T) {
	for name, c := range map[string]struct {
		storm
		within time.Duration
		foul   string // what the referee has to find
	}{
		"undisturbed":                      {storm{limits: windows{}, builds: 20}, 4 * time.Minute, ""},
		"with refusals":                    {storm{limits: windows{}, builds: 20, refuse: refusals}, 20 * time.Minute, ""},
		"so many that the hour is full":    {storm{limits: windows{}, builds: 120}, 3 * time.Hour, ""},
		"a pacer that grants everything":   {storm{limits: granted{}, builds: 20}, time.Hour, "after another mutation"},
		"a pacer that knows no hour":       {storm{limits: hurried{windows{}}, builds: 120}, 3 * time.Hour, "requests that create content within 1h"},
		"a refusal that few hear of":       {storm{limits: deaf{windows{}}, builds: 20, refuse: refusals, alone: true}, 3 * time.Hour, "before the time that GitHub named"},
		"on three processes":               {storm{limits: windows{}, builds: 20, processes: 3, refuse: refusals}, 20 * time.Minute, ""},
		"a refusal that one process knows": {storm{limits: deaf{windows{}}, builds: 20, processes: 3, refuse: refusals}, 3 * time.Hour, "before the time that GitHub named"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ref, took := c.rage(t)
				t.Logf("%d mutations, %d of them create content, in %s", ref.mutations, len(ref.created), took)
				if ref.mutations < 7*c.builds || took > c.within {
					t.Errorf("%d mutations of %d builds in %s", ref.mutations, c.builds, took)
				}
				found := strings.Join(ref.fouls, "\n")
				if c.foul == "" && found != "" || !strings.Contains(found, c.foul) {
					t.Errorf("%d fouls, want %q; the first: %.300s", len(ref.fouls), c.foul, found)
				}
			})
		})
	}
}

// oneByOne is a limiter that many ask at once.
type oneByOne struct {
	mu     sync.Mutex // guards limits
	limits Limiter
}

func (o *oneByOne) Take(ctx context.Context, bucket string, n int64, limit queue.Limit) (time.Duration, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.limits.Take(ctx, bucket, n, limit)
}

// deaf is a pacer that tells nobody what GitHub said.
type deaf struct{ windows }

func (d deaf) Take(ctx context.Context, bucket string, n int64, limit queue.Limit) (time.Duration, error) {
	if n == 0 || len(limit) == 1 && slices.Equal(limit, queue.Closed(limit[0].Per)) {
		return 0, nil
	}
	return d.windows.Take(ctx, bucket, n, limit)
}

// hurried is a pacer that knows no limit but the second.
type hurried struct{ windows }

func (h hurried) Take(ctx context.Context, bucket string, n int64, limit queue.Limit) (time.Duration, error) {
	return h.windows.Take(ctx, bucket, n, slices.DeleteFunc(slices.Clone(limit), func(r queue.Rate) bool { return r.Per > time.Second }))
}
