package github

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/palantir/go-githubapp/githubapp"

	"github.com/slipway-dev/slipway/queue"
)

// GitHub's limits on writing, per installation: a second between mutations, and
// so many requests that create content.
var (
	writeLimit  = queue.Limit{{Max: 1, Per: time.Second}}
	createLimit = queue.Limit{{Max: 80, Per: time.Minute}, {Max: 500, Per: time.Hour}}
)

// patience is the longest that a call waits for its turn. Whoever must wait
// longer gets a Later and gives its slot to somebody else.
const patience = 5 * time.Second

// pauses lie between the attempts of a read.
var pauses = [...]time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// careful is the middleware of every client: it paces writes, repeats reads,
// and turns refusals for reasons of rate into a Later. An installation of 0 is
// the App itself, which is not paced.
func (a *App) careful(installation int64) githubapp.ClientMiddleware {
	return func(next http.RoundTripper) http.RoundTripper {
		return carefulTransport{next: next, limits: a.o.Limits, installation: installation}
	}
}

type carefulTransport struct {
	next         http.RoundTripper
	limits       Limiter
	installation int64
}

// RoundTrip implements http.RoundTripper.
func (t carefulTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.installation != 0 && mutates(r) {
		if err := t.pace(r.Context(), r.Method == http.MethodPost); err != nil {
			closeBody(r)
			return nil, err
		}
	}
	if !repeatable(r) {
		return t.once(r)
	}
	for _, pause := range pauses {
		resp, err := t.once(r)
		if !stumbled(resp, err) || r.Context().Err() != nil {
			return resp, err
		}
		if resp != nil {
			closeResponse(resp)
		}
		if err := sleep(r.Context(), pause); err != nil {
			return nil, err
		}
		if r.GetBody != nil {
			again := r.Clone(r.Context())
			if again.Body, err = r.GetBody(); err != nil {
				return nil, fmt.Errorf("rewind the request: %w", err)
			}
			r = again
		}
	}
	return t.once(r)
}

func (t carefulTransport) once(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	later, err := limited(resp, time.Now())
	if err != nil {
		closeResponse(resp)
		return nil, fmt.Errorf("read GitHub's refusal: %w", err)
	}
	if later != nil {
		closeResponse(resp)
		return nil, later.park()
	}
	return resp, nil
}

// pace waits for a write's turn.
func (t carefulTransport) pace(ctx context.Context, creates bool) error {
	bucket := fmt.Sprintf("github/%d/", t.installation)
	if creates {
		if err := t.turn(ctx, bucket+"create", createLimit); err != nil {
			return err
		}
	}
	return t.turn(ctx, bucket+"write", writeLimit)
}

func (t carefulTransport) turn(ctx context.Context, bucket string, limit queue.Limit) error {
	start := time.Now()
	for {
		wait, err := t.limits.Take(ctx, bucket, 1, limit)
		if err != nil {
			return fmt.Errorf("take a turn to write: %w", err)
		}
		if wait <= 0 {
			return nil
		}
		if time.Since(start)+wait > patience {
			late := &Later{At: time.Now().Add(wait), Cause: "our own pace of writing to GitHub"}
			return late.park()
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// mutates reports whether a request changes something that people see. Giving a
// token back does not.
func mutates(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && !strings.HasSuffix(r.URL.Path, "/installation/token")
}

// repeatable reports whether a request may be sent twice: reads, and asking for
// a token.
func repeatable(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead ||
		(strings.HasSuffix(r.URL.Path, "/access_tokens") && r.GetBody != nil)
}

// stumbled reports whether another attempt may go better.
func stumbled(resp *http.Response, err error) bool {
	if err != nil {
		_, wait := asLater(err)
		return !wait
	}
	return resp.StatusCode >= http.StatusInternalServerError && resp.StatusCode != http.StatusNotImplemented
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // nothing was sent
	}
}
