package github

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
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
	shared := newManners(a.o.Limits, installation)
	return func(next http.RoundTripper) http.RoundTripper {
		return carefulTransport{next: next, manners: shared}
	}
}

// manners are what all clients of an installation share in this process.
type manners struct {
	limits       Limiter
	installation int64
	line         chan struct{} // who is at its head takes turns; those behind come in their order

	mu      sync.Mutex // guards below
	waiting int        // to write, in line or at its head
	held    *Later     // GitHub's word that nothing be sent before a time; nil if there was none
}

func newManners(limits Limiter, installation int64) *manners {
	return &manners{limits: limits, installation: installation, line: make(chan struct{}, 1)}
}

type carefulTransport struct {
	*manners
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t carefulTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.hold(); err != nil {
		closeBody(r)
		return nil, err
	}
	if t.installation != 0 && mutates(r) {
		err := t.pace(r.Context(), r.Method == http.MethodPost)
		if err == nil {
			err = leave(r.Context())
		}
		if err != nil {
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
		t.obey(later)
		return nil, later.park()
	}
	if last := spent(resp, time.Now()); last != nil {
		t.obey(last)
	}
	// By this header go-github would refuse to send, in an error of its own that
	// looks like any other. We do it instead.
	resp.Header.Del("X-RateLimit-Reset")
	return resp, nil
}

// hold is GitHub's word to wait, while it lasts: whoever goes on sending is
// limited for longer.
func (m *manners) hold() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil || !time.Now().Before(m.held.At) {
		return nil
	}
	return m.held.park()
}

func (m *manners) obey(l *Later) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held == nil || l.At.After(m.held.At) {
		m.held = l
	}
}

// pace waits for a write's turn, behind those who came before. Where too many
// did, it says when the turn may come.
func (m *manners) pace(ctx context.Context, creates bool) error {
	ahead, leave := m.enter()
	defer leave()
	if ahead*writeLimit[0].Per >= patience {
		return ownPace(ahead * writeLimit[0].Per)
	}
	select {
	case m.line <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-m.line }()
	return m.turn(ctx, creates)
}

// enter counts a write in. ahead is how many came before.
func (m *manners) enter() (ahead time.Duration, leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ahead = time.Duration(m.waiting)
	m.waiting++
	return ahead, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.waiting--
	}
}

// ownPace hands a write back that would wait too long in its slot.
func ownPace(wait time.Duration) error {
	late := &Later{At: time.Now().Add(wait), Cause: "our own pace of writing to GitHub"}
	return late.park()
}

// turn takes a turn from the limits that all processes share. What a create takes
// of the minute and the hour it takes last, at the instant in which it is sent.
func (m *manners) turn(ctx context.Context, creates bool) error {
	start, bucket := time.Now(), fmt.Sprintf("github/%d/", m.installation)
	for {
		wait, err := m.limits.Take(ctx, bucket+"write", 1, writeLimit)
		if err == nil && wait <= 0 && creates {
			wait, err = m.limits.Take(ctx, bucket+"create", 1, createLimit)
		}
		if err != nil {
			return fmt.Errorf("take a turn to write: %w", err)
		}
		if wait <= 0 {
			return m.hold() // GitHub may have said so since
		}
		if time.Since(start)+wait > patience {
			return ownPace(wait)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// Fenced has each write ask for leave right before it is sent, and fail where
// there is none. A worker that stood still after it had looked at what is there
// would write on that although another has its job.
func Fenced(ctx context.Context, ask func(context.Context) error) context.Context {
	return context.WithValue(ctx, fenceKey{}, ask)
}

type fenceKey struct{}

func leave(ctx context.Context) error {
	ask, fenced := ctx.Value(fenceKey{}).(func(context.Context) error)
	if !fenced {
		return nil
	}
	if err := ask(ctx); err != nil {
		return fmt.Errorf("ask for leave to write: %w", err)
	}
	return nil
}

// reading marks what is sent as a read, whatever its method: documents of GraphQL
// are all posted.
func reading(ctx context.Context) context.Context {
	return context.WithValue(ctx, readingKey{}, true)
}

type readingKey struct{}

func reads(r *http.Request) bool { return r.Context().Value(readingKey{}) != nil }

// mutates reports whether a request changes something that people see. Giving a
// token back does not.
func mutates(r *http.Request) bool {
	return !reads(r) && r.Method != http.MethodGet && r.Method != http.MethodHead && !strings.HasSuffix(r.URL.Path, "/installation/token")
}

// repeatable reports whether a request may be sent twice: reads, and asking for
// a token.
func repeatable(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead ||
		((strings.HasSuffix(r.URL.Path, "/access_tokens") || reads(r)) && r.GetBody != nil)
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
