package github

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(code int, body string, headers ...string) *http.Response {
	h := http.Header{}
	for pair := range slices.Chunk(headers, 2) {
		h.Set(pair[0], pair[1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

var quiet = slog.New(slog.DiscardHandler)

// windows is a Limiter that keeps sliding windows, as the store does.
type windows map[string][]time.Time

func (w windows) Take(_ context.Context, bucket string, n int64, limit queue.Limit) (time.Duration, error) {
	now, closed := time.Now(), bucket+" is closed until"
	if len(limit) == 1 && slices.Equal(limit, queue.Closed(limit[0].Per)) {
		w[closed] = append(w[closed], now.Add(limit[0].Per))
		return 0, nil
	}
	var wait time.Duration
	for _, until := range w[closed] {
		wait = max(wait, until.Sub(now))
	}
	for _, rate := range limit {
		var within []time.Time
		for _, at := range w[bucket] {
			if now.Sub(at) < rate.Per {
				within = append(within, at)
			}
		}
		if over := int64(len(within)) + n - rate.Max; over > 0 {
			wait = max(wait, within[over-1].Add(rate.Per).Sub(now))
		}
	}
	if wait == 0 {
		for range n {
			w[bucket] = append(w[bucket], now)
		}
	}
	return wait, nil
}

func send(ctx context.Context, t *testing.T, tr http.RoundTripper, method, path string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "https://api.example.com"+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(r)
	if err == nil {
		closeResponse(resp)
	}
	return err
}

func TestWritesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []time.Duration
		start := time.Now()
		tr := carefulTransport{manners: newManners(windows{}, quiet, 7), next: roundTrip(func(*http.Request) (*http.Response, error) {
			sent = append(sent, time.Since(start))
			return answer(http.StatusOK, "{}"), nil
		})}
		for _, method := range []string{"POST", "PATCH", "DELETE", "GET", "POST"} {
			if err := send(t.Context(), t, tr, method, "/repos/o/r/issues/1/comments"); err != nil {
				t.Fatal(err)
			}
		}
		if err := send(t.Context(), t, tr, "DELETE", "/installation/token"); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}
		if !slices.Equal(sent, want) {
			t.Fatalf("sent at %v, want %v", sent, want)
		}
	})
}

func TestALongWaitIsHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		created := 0
		tr := carefulTransport{manners: newManners(windows{}, quiet, 7), next: roundTrip(func(*http.Request) (*http.Response, error) {
			created++
			return answer(http.StatusCreated, "{}"), nil
		})}
		start := time.Now()
		var err error
		for err == nil {
			err = send(t.Context(), t, tr, "POST", "/repos/o/r/issues/1/comments")
		}
		later, ok := errors.AsType[*Later](err)
		if !ok || created != 500 {
			t.Fatalf("after %d: %v", created, err)
		}
		if at := later.At.Sub(start); at < time.Hour || at > time.Hour+time.Second {
			t.Fatalf("come back after %s", at)
		}
		if err := send(t.Context(), t, tr, "GET", "/x"); err != nil {
			t.Fatalf("a read is not paced: %v", err)
		}
	})
}

func TestPacingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := carefulTransport{manners: newManners(windows{}, quiet, 7), next: roundTrip(func(*http.Request) (*http.Response, error) {
			return answer(http.StatusOK, "{}"), nil
		})}
		if err := send(t.Context(), t, tr, "PATCH", "/x"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := send(ctx, t, tr, "PATCH", "/x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
	})
}

func TestOnlyReadsAreRepeated(t *testing.T) {
	reset := errors.New("connection reset")
	for name, tc := range map[string]struct {
		method, path string
		fail         int // so many attempts fail
		code         int // with this status; 0 breaks the connection
		attempts     int
		ok           bool
	}{
		"a read that recovers":           {"GET", "/x", 3, 502, 4, true},
		"a read that never does":         {"GET", "/x", 9, 502, 4, true},
		"a read whose connection broke":  {"GET", "/x", 2, 0, 3, true},
		"a read that is always cut":      {"GET", "/x", 9, 0, 4, false},
		"a read of what is not there":    {"GET", "/x", 9, 404, 1, true},
		"asking for a token":             {"POST", "/app/installations/7/access_tokens", 1, 503, 2, true},
		"a write that failed":            {"POST", "/x", 9, 502, 1, true},
		"a write whose connection broke": {"PATCH", "/x", 9, 0, 1, false},
		"a removal":                      {"DELETE", "/x", 9, 500, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				tr := carefulTransport{manners: newManners(windows{}, quiet, 7), next: roundTrip(func(r *http.Request) (*http.Response, error) {
					attempts++
					if body, err := io.ReadAll(r.Body); err != nil || string(body) != "{}" {
						t.Errorf("attempt %d has body %q, %v", attempts, body, err)
					}
					switch {
					case attempts > tc.fail:
						return answer(http.StatusOK, "{}"), nil
					case tc.code == 0:
						return nil, reset
					default:
						return answer(tc.code, "{}"), nil
					}
				})}
				err := send(t.Context(), t, tr, tc.method, tc.path)
				if attempts != tc.attempts || (err == nil) != tc.ok {
					t.Fatalf("%d attempts, error %v", attempts, err)
				}
			})
		})
	}
}

func TestRefusalsForReasonsOfRate(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	permission := `{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/rest"}`
	secondary := `{"message":"You have exceeded a secondary rate limit."}`
	for name, tc := range map[string]struct {
		resp *http.Response
		wait time.Duration // 0: no refusal for reasons of rate
	}{
		"success":                 {answer(200, "{}", "X-RateLimit-Remaining", "0"), 0},
		"403 about permissions":   {answer(403, permission, "X-RateLimit-Remaining", "4999"), 0},
		"403 with Retry-After":    {answer(403, secondary, "Retry-After", "17"), 17 * time.Second},
		"429 with Retry-After":    {answer(429, secondary, "Retry-After", "17"), 17 * time.Second},
		"403 with an empty quota": {answer(403, "{}", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(now.Unix()+900, 10)), 15 * time.Minute},
		"429 with an empty quota": {answer(429, "{}", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(now.Unix()+900, 10)), 15 * time.Minute},
		"an empty quota, and a clock of ours that is ahead":  {answer(403, "{}", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(now.Unix()+900, 10), "Date", now.Add(-time.Minute).UTC().Format(http.TimeFormat)), 16 * time.Minute},
		"an empty quota, and a clock of ours that is behind": {answer(403, "{}", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(now.Unix()+900, 10), "Date", now.Add(time.Minute).UTC().Format(http.TimeFormat)), 14 * time.Minute},
		"an empty quota that is full again":                  {answer(403, "{}", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(now.Unix()-1, 10)), time.Minute},
		"an empty quota without time":                        {answer(403, "{}", "X-RateLimit-Remaining", "0"), time.Minute},
		"403 that only says so":                              {answer(403, secondary, "X-RateLimit-Remaining", "4000"), time.Minute},
		"429 that says nothing":                              {answer(429, ""), time.Minute},
		"a date":                                             {answer(429, "", "Retry-After", now.Add(30*time.Second).UTC().Format(http.TimeFormat)), 30 * time.Second},
		"nonsense":                                           {answer(429, "", "Retry-After", "soon"), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			later, err := limited(tc.resp, now)
			if err != nil {
				t.Fatal(err)
			}
			if tc.wait == 0 {
				if later != nil {
					t.Fatalf("taken for a limit: %v", later)
				}
				return
			}
			if later == nil || !later.At.Equal(now.Add(tc.wait)) || later.Cause == "" {
				t.Fatalf("got %v, want %s", later, tc.wait)
			}
		})
	}
	kept := answer(403, permission)
	if _, err := limited(kept, now); err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(kept.Body); err != nil || string(body) != permission {
		t.Fatalf("the body is lost: %q, %v", body, err)
	}
}

func TestALimitIsNotRepeated(t *testing.T) {
	attempts := 0
	tr := carefulTransport{manners: newManners(windows{}, quiet, 7), next: roundTrip(func(*http.Request) (*http.Response, error) {
		attempts++
		return answer(http.StatusTooManyRequests, "", "Retry-After", "1"), nil
	})}
	err := send(t.Context(), t, tr, "GET", "/x")
	if _, ok := errors.AsType[*Later](err); !ok || attempts != 1 {
		t.Fatalf("%d attempts, error %v", attempts, err)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	c, err := newCache()
	if err != nil {
		t.Fatal(err)
	}
	c.Set("small", []byte("x"))
	c.Set("large", make([]byte, cacheBytes+1))
	if _, ok := c.Get("large"); ok {
		t.Fatal("too large an answer is kept")
	}
	for i := range cacheEntries {
		c.Set(strconv.Itoa(i), []byte("y"))
	}
	if _, ok := c.Get("small"); ok {
		t.Fatal("the oldest is still there")
	}
	if v, ok := c.Get("7"); !ok || string(v) != "y" {
		t.Fatalf("got %q, %v", v, ok)
	}
	c.Delete("7")
	if _, ok := c.Get("7"); ok {
		t.Fatal("deleted, yet there")
	}
}
