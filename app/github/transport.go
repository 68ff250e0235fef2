package github

import (
	"context"
	"fmt"
	"log/slog"
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

// Before a read the store is asked whether another process was told to wait, at
// most once in lookEvery, which is about as long as what is on its way anyhow, and
// for no longer than lookTimeout. A write learns it with its turn.
const (
	lookEvery   = 250 * time.Millisecond
	lookTimeout = time.Second
)

// pauses lie between the attempts of a read.
var pauses = [...]time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second}

// careful is the middleware of every client: it paces writes, repeats reads,
// and turns refusals for reasons of rate into a Later. An installation of 0 is
// the App itself, which is not paced.
func (a *App) careful(installation int64) githubapp.ClientMiddleware {
	shared := a.mannersOf(installation)
	return func(next http.RoundTripper) http.RoundTripper {
		return carefulTransport{next: next, manners: shared}
	}
}

// manners are what all clients of an installation share in this process. What
// all processes share is in limits: turns, and GitHub's word to wait, which closes
// the bucket of the writes.
type manners struct {
	limits Limiter
	log    *slog.Logger
	bucket string        // of the installation
	paced  bool          // the App itself is not
	line   chan struct{} // who is at its head takes turns; those behind come in their order

	mu      sync.Mutex // guards below
	waiting int        // to write, in line or at its head
	held    *Later     // GitHub's word that nothing be sent before a time; nil if there was none
	looked  time.Time  // when the store was last asked for what others were told
}

func newManners(limits Limiter, log *slog.Logger, installation int64) *manners {
	return &manners{
		limits: limits, log: log, bucket: fmt.Sprintf("github/%d/", installation), paced: installation != 0, line: make(chan struct{}, 1),
	}
}

// mannersOf are those of an installation, whatever token its clients have.
func (a *App) mannersOf(installation int64) *manners {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.manners[installation]
	if !ok {
		m = newManners(a.o.Limits, a.o.Log, installation)
		if a.manners == nil {
			a.manners = map[int64]*manners{}
		}
		a.manners[installation] = m
	}
	return m
}

type carefulTransport struct {
	*manners
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t carefulTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.wait(r); err != nil {
		closeBody(r)
		return nil, err
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

// wait waits until a request may be sent, or says when to come back or why it may not.
func (t carefulTransport) wait(r *http.Request) error {
	if err := t.hold(); err != nil {
		return err
	}
	if t.paced && mutates(r) {
		if err := t.pace(r.Context(), r.Method == http.MethodPost); err != nil {
			return err
		}
		return leave(r.Context())
	}
	t.look(r.Context())
	return t.hold()
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
		t.obey(r.Context(), later)
		return nil, later.park()
	}
	if last := spent(resp, time.Now()); last != nil {
		t.obey(r.Context(), last)
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

// obey keeps GitHub's word, and tells the other processes. Where they cannot be
// told it counts in this one.
func (m *manners) obey(ctx context.Context, l *Later) {
	if !m.keep(l) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	if _, err := m.limits.Take(ctx, m.bucket+"write", 1, queue.Closed(time.Until(l.At))); err != nil {
		m.log.WarnContext(ctx, "tell the other workers that GitHub wants us to wait", "until", l.At, "error", err)
	}
}

// keep remembers until when nothing is to be sent, and reports whether that is
// news.
func (m *manners) keep(l *Later) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held != nil && !l.At.After(m.held.At) {
		return false
	}
	m.held = l
	return true
}

// look asks the store now and then for what other processes were told. Where the
// store is away, what this one was told is all that counts.
func (m *manners) look(ctx context.Context) {
	m.mu.Lock()
	due := time.Since(m.looked) >= lookEvery
	if due {
		m.looked = time.Now()
	}
	m.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	wait, err := m.limits.Take(ctx, m.bucket+"write", 0, nil)
	if err != nil {
		m.log.WarnContext(ctx, "ask whether GitHub wants us to wait", "error", err)
		return
	}
	if wait > 0 {
		m.keep(told(wait))
	}
}

// told is what GitHub told another process.
func told(wait time.Duration) *Later {
	return &Later{At: time.Now().Add(wait), Cause: "GitHub's rate limit, of which another worker was told"}
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
	start := time.Now()
	for {
		wait, err := m.limits.Take(ctx, m.bucket+"write", 1, writeLimit)
		if wait > writeLimit[0].Per { // no turn takes so long: the bucket is closed
			m.keep(told(wait))
		}
		if err == nil && wait <= 0 && creates {
			wait, err = m.limits.Take(ctx, m.bucket+"create", 1, createLimit)
		}
		if err != nil {
			return fmt.Errorf("take a turn to write: %w", err)
		}
		if held := m.hold(); held != nil || wait <= 0 {
			return held // GitHub may have said so since
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
