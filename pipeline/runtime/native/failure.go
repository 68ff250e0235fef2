package native

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// statusOverloaded is Anthropic's own.
const statusOverloaded = 529

// An apiError is a provider's refusal.
type apiError struct {
	status int
	words  string
	after  time.Duration // how long it asks to wait; 0: it does not say
	err    error
}

func (e *apiError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.words) }

func (e *apiError) Unwrap() error { return e.err }

// errCutOff is a reply without an end: a connection that broke quietly.
var errCutOff = errors.New("the answer broke off")

// A strayPage is an answer that is no stream of events, as a proxy gives it.
type strayPage struct{ media string }

func (e *strayPage) Error() string {
	return fmt.Sprintf("the answer is %q and no event stream", e.media)
}

// pulse calls alive for every piece of an answer that arrives, and refuses an
// answer that is none.
func pulse(alive func()) func(*http.Request, func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	return func(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		res, err := next(req)
		if err != nil {
			return res, err
		}
		alive()
		if err := stray(res); err != nil {
			_ = res.Body.Close() // it is not read
			return nil, err
		}
		res.Body = &pulsing{body: res.Body, alive: alive}
		return res, nil
	}
}

// stray says why an answer is none. Errors are answers: the SDK reads them.
func stray(res *http.Response) error {
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode >= http.StatusBadRequest:
		return nil
	case res.StatusCode >= http.StatusMultipleChoices:
		return &apiError{status: res.StatusCode, words: "it redirects to " + res.Header.Get("Location") + ", which is not followed: configure that address"}
	case media != "text/event-stream":
		return &strayPage{media: media}
	}
	return nil
}

type pulsing struct {
	body  io.ReadCloser
	alive func()
}

func (p *pulsing) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if n > 0 {
		p.alive()
	}
	return n, err
}

func (p *pulsing) Close() error { return p.body.Close() }

// hint is how long a provider asks to wait.
func hint(res *http.Response) time.Duration {
	if res == nil {
		return 0
	}
	if ms, err := strconv.ParseInt(res.Header.Get("Retry-After-Ms"), 10, 32); err == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	text := res.Header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// failure says what an error of a request means for the call.
func failure(err error) *runtime.Error {
	if known, ok := errors.AsType[*runtime.Error](err); ok {
		return known
	}
	if errors.Is(err, bufio.ErrTooLong) { // one event of a stream alone
		return runtime.ErrOutput()
	}
	api, ok := errors.AsType[*apiError](err)
	if !ok {
		// The provider was not reached, or its answer broke off.
		return &runtime.Error{Class: runtime.Transient, Reason: fmt.Sprintf("the model's API did not answer: %v", err), Err: err}
	}
	out := &runtime.Error{
		Class: runtime.Classify(api.status, api.words), After: api.after, Err: err,
		Reason: "the model's API failed: " + clip(strings.TrimSpace(api.Error()), 500),
	}
	if unknownModel(api.words) {
		out.Class = runtime.Fatal
	}
	if api.status == http.StatusUnauthorized || api.status == http.StatusForbidden {
		out.Reason += "; check the key of the provider"
	}
	if out.Class != runtime.Transient {
		out.After = 0
	}
	return out
}

// unknownModel recognizes providers that answer 400 where others answer 404.
func unknownModel(words string) bool {
	words = strings.ToLower(words)
	return strings.Contains(words, "not a valid model") || strings.Contains(words, "model_not_found")
}

// overflows recognizes a prompt that is too long for the model.
func overflows(err error) bool {
	api, ok := errors.AsType[*apiError](err)
	if !ok || api.status != http.StatusBadRequest && api.status != http.StatusRequestEntityTooLarge {
		return false
	}
	words := strings.ToLower(api.words)
	for _, sign := range []string{"prompt is too long", "context_length_exceeded", "context length", "context window", "maximum context"} {
		if strings.Contains(words, sign) {
			return true
		}
	}
	return false
}

const (
	maxTries   = 4                      // of one request
	firstPause = 500 * time.Millisecond // before the second; doubles
)

// persist asks until there is an answer, a failure that a pause does not mend,
// too many tries, or no budget for another. A wait that is longer than the call may be silent is the
// caller's to wait.
func (a *agent) persist(ctx context.Context, q question) (reply, error) {
	for try, pause := 1, firstPause; ; try, pause = try+1, 2*pause {
		if err := a.afford(); err != nil {
			return reply{}, err
		}
		a.guard.Alive()
		r, err := a.ask(ctx, q)
		a.guard.Pause()
		a.spend(r)
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			a.tell(r)
			return r, context.Cause(ctx)
		}
		problem := failure(err)
		wait := max(problem.After, pause+rand.N(pause/2))
		if problem.Class != runtime.Transient || try == maxTries || wait >= a.idle {
			a.tell(r)
			return r, problem
		}
		a.emit(runtime.Event{Kind: runtime.Retry, Text: fmt.Sprintf("attempt %d of %d failed (%s); again in %s", try, maxTries, problem.Reason, wait.Round(time.Millisecond))})
		if err := a.rest(ctx, wait); err != nil {
			return r, err
		}
	}
}

// rest waits. The call counts as alive meanwhile.
func (a *agent) rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
