package runtime

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A tap stands between a CLI and the responses API of its model, on loopback,
// for as long as one call lasts. The CLI holds a key to the tap only. What it
// does not tell, or tells in its own words, is seen here: that a long answer is
// under way, what each request took, why one failed, and how long the provider
// wants to be left alone. Where to go on is forbidden or in vain, the tap ends
// the run.
type tap struct {
	opts     tapOptions
	key      string // of the CLI, for this call
	listener net.Listener
	server   *http.Server
	upstream *http.Transport
	proxy    *httputil.ReverseProxy
	serving  sync.WaitGroup

	mu       sync.Mutex
	watch    *watch // of the run that the requests belong to
	answers  int
	usage    Usage
	micros   int64
	failure  *Error  // of the last request, if it failed
	stop     string  // what the tap ended the run for: max_turns or budget
	news     []Event // not yet taken
	unpriced bool    // said so
}

// tapOptions say where a tap leads and what it allows.
type tapOptions struct {
	base   *url.URL // of the API, with its version
	secret string   // the key to it
	fix    string   // what to do where the API does not know the key
	prices Prices
	turns  int   // answers; 0 means any number
	micros int64 // ceiling in micro-dollars; 0 means none
	idle   time.Duration
}

// newTap opens a tap; the caller closes it when the CLI has ended.
func newTap(ctx context.Context, opts tapOptions) (*tap, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("stand before the model's API: %w", err)
	}
	t := &tap{opts: opts, key: rand.Text(), listener: listener, upstream: http.DefaultTransport.(*http.Transport).Clone()}
	quiet := log.New(io.Discard, "", 0) // what fails is told by the run
	t.proxy = &httputil.ReverseProxy{
		Rewrite: t.rewrite, ModifyResponse: t.response, ErrorHandler: t.unreached, Transport: t.upstream, ErrorLog: quiet,
	}
	t.server = &http.Server{Handler: t, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}
	t.serving.Go(func() { _ = t.server.Serve(listener) }) // it ends with close
	return t, nil
}

// url is the base URL for the CLI.
func (t *tap) url() string { return "http://" + t.listener.Addr().String() }

// attach names the watch that learns of signs of life.
func (t *tap) attach(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch = w
}

// close cuts what is still open.
func (t *tap) close() {
	_ = t.server.Close() // nothing is left to be lost
	t.upstream.CloseIdleConnections()
	t.serving.Wait()
}

// take returns what happened since it was last called.
func (t *tap) take() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	news := t.news
	t.news = nil
	return news
}

// count adds what the requests took to res.
func (t *tap) count(res *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	res.Usage, res.CostMicros, res.Turns = t.usage, t.micros, t.answers
	res.Stop = cmp.Or(t.stop, res.Stop)
}

// failed returns why the last request failed, nil if it did not.
func (t *tap) failed() *Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}

// ServeHTTP answers the CLI.
func (t *tap) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case subtle.ConstantTimeCompare([]byte(key), []byte(t.key)) != 1:
		refuse(w, http.StatusUnauthorized, "this is not the key of this call")
		return
	case r.Method != http.MethodPost || r.URL.Path != "/responses":
		refuse(w, http.StatusNotFound, "only the model's answers are to be had here")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOutput))
	if err != nil {
		refuse(w, http.StatusBadRequest, "the request cannot be read: "+err.Error())
		return
	}
	var request struct {
		Model string `json:"model"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		refuse(w, http.StatusBadRequest, "the request is no JSON: "+err.Error())
		return
	}
	if failure := t.begin(request.Model); failure != nil {
		refuse(w, http.StatusForbidden, failure.Reason)
		return
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	t.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tapModel{}, request.Model)))
}

// tapModel is the key of the model that a request asks.
type tapModel struct{}

// begin ends the run where no more requests may follow.
func (t *tap) begin(model string) *Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alive()
	switch unbounded := t.opts.prices.Bounded(model, t.opts.micros); {
	case unbounded != nil:
		t.failure = unbounded
	case t.opts.micros > 0 && t.micros >= t.opts.micros:
		t.stop, t.failure = "budget", overBudget("codex", t.opts.micros)
	case t.opts.turns > 0 && t.answers >= t.opts.turns:
		t.stop, t.failure = "max_turns", &Error{Class: Refused, Reason: fmt.Sprintf("codex used up its %d turns", t.opts.turns)}
	default:
		return nil
	}
	t.end(t.failure)
	return t.failure
}

func (t *tap) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL = t.opts.base.JoinPath("responses")
	r.Out.Host = ""
	r.Out.Header.Set("Authorization", "Bearer "+t.opts.secret)
}

// response looks at the head of an answer and arranges for its body to be seen.
func (t *tap) response(r *http.Response) error {
	if r.StatusCode >= http.StatusBadRequest {
		return t.refusal(r)
	}
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		t.fail(&Error{Class: Transient, Reason: fmt.Sprintf("the model's API answers with %s in place of a stream of events", cmp.Or(clip(kind), "something"))})
		return nil
	}
	t.mu.Lock()
	t.answers++
	t.mu.Unlock()
	model, _ := r.Request.Context().Value(tapModel{}).(string)
	r.Body = &tapStream{tap: t, model: model, body: r.Body}
	return nil
}

// refusal reads an answer that is an error.
func (t *tap) refusal(r *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("read the model's refusal: %w", err)
	}
	_ = r.Body.Close() // the rest of an error is of no use
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Del("Content-Length")
	var told struct {
		Error tapError `json:"error"`
	}
	if json.Unmarshal(body, &told) != nil || told.Error.Message == "" {
		told.Error.Message = strings.TrimSpace(string(body))
	}
	t.fail(t.explain(r.StatusCode, told.Error, retryAfter(r.Header)))
	return nil
}

// tapError is an error in the API's words.
type tapError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (t *tap) explain(status int, e tapError, after time.Duration) *Error {
	failure := &Error{Class: classify(status, e.Code+" "+e.Message), After: after}
	failure.Reason = strings.TrimSpace("the model's API refuses the call: " + statusText(status) + " " + clip(cmp.Or(e.Message, e.Code)))
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		failure.Reason += t.opts.fix
	}
	return failure
}

// unreached answers for an API that does not.
func (t *tap) unreached(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil { // else the CLI has gone
		t.fail(&Error{Class: Transient, Reason: "the model's API cannot be reached: " + err.Error(), Err: err})
	}
	refuse(w, http.StatusBadGateway, err.Error())
}

// fail remembers why a request failed. The CLI tries again by itself, a few
// times; the run ends where that is in vain, and where the provider wants to be
// left alone for longer than an agent may be silent.
func (t *tap) fail(failure *Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alive()
	t.failure = failure
	if failure.Class == Fatal || failure.Class == Transient && failure.After >= t.opts.idle {
		t.end(failure)
	}
}

// end ends the run. The caller holds the lock, as for alive.
func (t *tap) end(failure *Error) {
	if t.watch != nil {
		t.watch.fail(failure)
	}
}

func (t *tap) alive() {
	if t.watch != nil {
		t.watch.alive()
	}
}

// tapUsage is what the API says that an answer took. Input counts also what was
// cached.
type tapUsage struct {
	Input   int64 `json:"input_tokens"`
	Output  int64 `json:"output_tokens"`
	Details struct {
		CacheRead  int64 `json:"cached_tokens"`
		CacheWrite int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
}

// tapEvent is what counts of an event of a stream.
type tapEvent struct {
	Type     string `json:"type"`
	Response struct {
		Usage *tapUsage `json:"usage"`
		Error *tapError `json:"error"`
	} `json:"response"`
}

// event learns from one event of a stream.
func (t *tap) event(model string, data []byte) {
	var e tapEvent
	if !bytes.Contains(data, []byte(`"response.`)) || json.Unmarshal(data, &e) != nil {
		return // no event; that is the CLI's to judge
	}
	if u := e.Response.Usage; u != nil && e.Type != "response.created" && e.Type != "response.in_progress" {
		t.spend(model, *u)
	}
	switch told := e.Response.Error; {
	case e.Type == "response.completed":
		t.mu.Lock()
		t.failure = nil
		t.mu.Unlock()
	case e.Type == "response.failed" && told != nil:
		t.fail(t.explain(statusOfCode[told.Code], *told, 0))
	}
}

// statusOfCode is the status that an error would have had, were the answer not
// under way.
var statusOfCode = map[string]int{
	"rate_limit_exceeded": http.StatusTooManyRequests, "server_error": http.StatusInternalServerError,
	"server_is_overloaded": http.StatusServiceUnavailable, "slow_down": http.StatusServiceUnavailable,
}

// spend adds what a request took.
func (t *tap) spend(model string, told tapUsage) {
	used := Usage{
		Input:  max(0, told.Input-told.Details.CacheRead-told.Details.CacheWrite),
		Output: max(0, told.Output), CacheRead: max(0, told.Details.CacheRead), CacheWrite: max(0, told.Details.CacheWrite),
	}
	micros, known := t.opts.prices.RequestCost(model, used)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.usage.Input += used.Input
	t.usage.Output += used.Output
	t.usage.CacheRead += used.CacheRead
	t.usage.CacheWrite += used.CacheWrite
	t.micros += micros
	t.news = append(t.news, Event{Kind: Usages, Usage: &used})
	if !known && !t.unpriced {
		t.unpriced = true
		t.news = append(t.news, Event{Kind: Notice, Text: fmt.Sprintf("there is no price for the model %s: what it costs is not counted", model)})
	}
}

// A tapStream is the body of an answer, on its way to the CLI.
type tapStream struct {
	tap   *tap
	model string
	body  io.ReadCloser
	rest  []byte // an unfinished line
	skip  bool   // the line is too long to be looked at
}

// maxEvent bounds an event that is looked at. The last one holds the whole answer.
const maxEvent = 16 << 20

func (s *tapStream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 {
		s.tap.mu.Lock()
		s.tap.alive()
		s.tap.mu.Unlock()
		s.look(p[:n])
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		s.tap.fail(&Error{Class: Transient, Reason: "the model's answer broke off: " + err.Error(), Err: err})
	}
	return n, err
}

func (s *tapStream) Close() error { return s.body.Close() }

func (s *tapStream) look(p []byte) {
	for {
		line, more, whole := bytes.Cut(p, []byte("\n"))
		if s.skip = s.skip || len(s.rest)+len(line) > maxEvent; s.skip {
			s.rest = nil
		} else {
			s.rest = append(s.rest, line...)
		}
		if !whole {
			return
		}
		if data, ok := bytes.CutPrefix(s.rest, []byte("data:")); ok {
			s.tap.event(s.model, bytes.TrimSpace(data))
		}
		p, s.rest, s.skip = more, s.rest[:0], false
	}
}

// retryAfter reads how long a provider wants to be left alone, in milliseconds,
// seconds or as a date; 0 when it does not say.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseInt(h.Get("Retry-After-Ms"), 10, 32); err == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseInt(text, 10, 32); err == nil && s > 0 {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// refuse answers the CLI in the words of the API.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(struct { // the CLI may be gone
		Error tapError `json:"error"`
	}{tapError{Message: why}})
}
