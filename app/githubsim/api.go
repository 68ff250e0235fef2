package githubsim

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A route is one operation of the REST interface.
type route struct {
	method  string
	pattern string
	as      who
	need    []string // permissions as name:level, any of which will do
	do      func(*call) (answer, error)
	match   *regexp.Regexp
}

// who may call a route.
type who int

const (
	anyone who = iota
	anApp
	anInstallation // or, for reading a public repository, anyone
)

// A call is one request to a route. It runs with Server.mu held.
type call struct {
	caller
	s     *Server
	st    *state
	ctx   context.Context
	r     *http.Request
	body  []byte
	path  map[string]string
	repo  *repo // where the pattern names one
	links []string

	location string // of a redirect
}

// An answer is what a route says.
type answer struct {
	status int
	body   any
}

func ok(body any) (answer, error)      { return answer{http.StatusOK, body}, nil }
func created(body any) (answer, error) { return answer{http.StatusCreated, body}, nil }
func gone() (answer, error)            { return answer{status: http.StatusNoContent}, nil }

// An apiError is a refusal in GitHub's words.
type apiError struct {
	Status  int          `json:"-"`
	Message string       `json:"message"`
	Errors  []fieldError `json:"errors,omitempty"`
	Texts   []string     `json:"-"` // errors as plain texts, which some operations use instead
	DocURL  string       `json:"documentation_url"`
	Header  http.Header  `json:"-"`
}

type fieldError struct {
	Resource string `json:"resource,omitempty"`
	Field    string `json:"field,omitempty"`
	Code     string `json:"code"`
	Message  string `json:"message,omitempty"`
}

// Error is GitHub's message with its status.
func (e *apiError) Error() string { return fmt.Sprintf("%d %s", e.Status, e.Message) }

func (e *apiError) marshal() ([]byte, error) {
	doc := e.DocURL
	if doc == "" {
		doc = "https://docs.github.com/rest"
	}
	if e.Texts != nil {
		return json.Marshal(struct {
			Message string   `json:"message"`
			Errors  []string `json:"errors"`
			DocURL  string   `json:"documentation_url"`
		}{e.Message, e.Texts, doc})
	}
	clone := *e
	clone.DocURL = doc
	return json.Marshal(&clone)
}

var (
	errNotFound  = &apiError{Status: http.StatusNotFound, Message: "Not Found"}
	errForbidden = &apiError{Status: http.StatusForbidden, Message: "Resource not accessible by integration"}
)

// invalid is the 422 for one field.
func invalid(resource, field, code, message string) error {
	return &apiError{
		Status: http.StatusUnprocessableEntity, Message: "Validation Failed",
		Errors: []fieldError{{Resource: resource, Field: field, Code: code, Message: message}},
	}
}

// unprocessable is the 422 without fields.
func unprocessable(message string, texts ...string) error {
	return &apiError{Status: http.StatusUnprocessableEntity, Message: message, Texts: texts}
}

// maxRequest bounds what a client may send to REST.
const maxRequest = 25 << 20

// serveAPI answers one REST request; path is without /api/v3.
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, path string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	x := Exchange{Method: r.Method, URL: s.absolute(r), RequestHeader: r.Header.Clone(), Request: body}
	found, params := findRoute(r.Method, path)
	if found != nil {
		x.Route = found.pattern
	}
	fault := s.fault(r.Method, path, r.URL.RawQuery)
	if !fault.before(r.Context(), s) {
		s.finish(x, r, path)
		panic(http.ErrAbortHandler)
	}
	status, header, reply := s.answerAPI(r, found, params, path, body, fault)
	if fault.Kind != FaultDropAfter {
		x.Status, x.ResponseHeader, x.Response = status, header, reply
	}
	s.finish(x, r, path)
	if !fault.after(r.Context(), s) {
		panic(http.ErrAbortHandler)
	}
	for name, values := range header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(reply) // a client that went away misses it
}

func (s *Server) finish(x Exchange, r *http.Request, path string) {
	full := path
	if r.URL.RawQuery != "" {
		full += "?" + r.URL.RawQuery
	}
	line := LogLine{At: s.now(), Method: r.Method, Path: full, Route: x.Route, Status: x.Status}
	if err := s.journal.add(line); err != nil {
		s.log.Error("request not logged", "error", err)
	}
	s.log.Debug("request", "method", r.Method, "path", full, "status", x.Status)
	s.observed(x)
}

// answerAPI does the work of one request under the lock.
func (s *Server) answerAPI(r *http.Request, found *route, params map[string]string, path string, body []byte, fault Fault) (int, http.Header, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	header := http.Header{}
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("X-GitHub-Media-Type", "github.v3; format=json")
	header.Set("X-GitHub-Request-Id", requestID())
	header.Set("Date", s.now().Format(http.TimeFormat))

	c := &call{s: s, st: s.state, ctx: r.Context(), r: r, body: body, path: params}
	out, err := answer{}, s.catchStepsLocked(c.ctx)
	if err == nil {
		out, err = s.dispatch(c, found, path, fault)
	}
	if err == nil && found.method != http.MethodGet {
		err = s.commit()
	}
	var raw []byte
	status := out.status
	if err == nil && out.body != nil {
		raw, err = json.Marshal(out.body)
	}
	if err != nil {
		status, raw = s.refuse(err, header)
	}
	if len(raw) == 0 {
		header.Del("Content-Type")
	}
	if len(c.links) > 0 {
		header.Set("Link", strings.Join(c.links, ", "))
	}
	if c.location != "" {
		header.Set("Location", c.location)
	}
	counted := true
	if r.Method == http.MethodGet && status == http.StatusOK {
		etag := etagOf(raw, r.Header.Get("Authorization"))
		header.Set("ETag", etag)
		header.Set("Cache-Control", "private, max-age=60, s-maxage=60")
		header.Set("Vary", "Accept, Authorization, Cookie, X-GitHub-OTP")
		if r.Header.Get("If-None-Match") == etag {
			status, raw, counted = http.StatusNotModified, nil, false
		}
	}
	s.quotaOf(c.caller, resourceOf(found)).stamp(header, s.now(), counted && path != "/rate_limit", fault.Kind == FaultPrimary)
	return status, header, raw
}

func (s *Server) refuse(err error, header http.Header) (int, []byte) {
	refusal, ok := errors.AsType[*apiError](err)
	if !ok {
		s.log.Error("request failed", "error", err)
		refusal = &apiError{Status: http.StatusInternalServerError, Message: "Server Error: " + err.Error()}
	}
	for name, values := range refusal.Header {
		header[name] = values
	}
	raw, err := refusal.marshal()
	if err != nil {
		return http.StatusInternalServerError, nil
	}
	return refusal.Status, raw
}

// dispatch checks who calls and what they may, then runs the route.
func (s *Server) dispatch(c *call, found *route, path string, fault Fault) (answer, error) {
	if fault.Kind == FaultPrimary && found == &graphRoute {
		return ok(graphAnswer{Errors: []*graphError{{Type: "RATE_LIMITED", Message: "API rate limit exceeded for installation."}}})
	}
	if refusal := fault.refusal(s.now()); refusal != nil {
		return answer{}, refusal
	}
	if found == nil {
		s.state.Unknown = append(s.state.Unknown, c.r.Method+" "+path)
		s.log.Error("unknown route", "method", c.r.Method, "path", path)
		if err := s.commit(); err != nil {
			return answer{}, err
		}
		return answer{}, &apiError{Status: http.StatusNotFound, Message: "Not Found", Header: http.Header{"X-Sim-Unknown": {c.r.Method + " " + path}}}
	}
	var err error
	if c.caller, err = s.identify(c.r); err != nil {
		return answer{}, err
	}
	if err := c.admit(found); err != nil {
		return answer{}, err
	}
	if err := s.secondary(c.caller, found); err != nil {
		return answer{}, err
	}
	return found.do(c)
}

// admit applies the rules of authentication, scope and permission.
func (c *call) admit(found *route) error {
	if found.as == anApp && (c.app == nil || c.token != nil) {
		return &apiError{Status: http.StatusUnauthorized, Message: "A JSON web token could not be decoded"}
	}
	if name, ok := c.path["repo"]; ok {
		c.repo = c.st.repo(c.path["owner"], name)
		if was := c.st.former(c.path["owner"], name); c.repo == nil && was != nil {
			return c.moved(was)
		}
		if c.repo == nil {
			return errNotFound
		}
	}
	if found.as != anInstallation {
		return nil
	}
	reading := c.r.Method == http.MethodGet
	if c.repo != nil && !c.sees(c.repo) {
		if c.repo.Public && reading {
			return nil
		}
		if c.repo.Public && c.token != nil {
			return errForbidden
		}
		return errNotFound
	}
	if c.token == nil {
		return &apiError{Status: http.StatusUnauthorized, Message: "Requires authentication"}
	}
	if c.repo != nil && c.repo.Public && reading {
		return nil
	}
	if len(found.need) == 0 {
		return nil
	}
	for _, need := range found.need {
		permission, level, _ := strings.Cut(need, ":")
		if c.may(permission, level) {
			return nil
		}
	}
	return errForbidden
}

// moved leads to where a repository is now. GitHub wants the method kept.
func (c *call) moved(to *repo) error {
	old := "/repos/" + c.path["owner"] + "/" + c.path["repo"]
	u := *c.r.URL
	u.Path, u.RawPath = strings.Replace(u.Path, old, "/repos/"+to.full(), 1), ""
	status := http.StatusMovedPermanently
	if c.r.Method != http.MethodGet {
		status = http.StatusTemporaryRedirect
	}
	return &apiError{Status: status, Message: http.StatusText(status), Header: http.Header{"Location": {c.s.url + u.RequestURI()}}}
}

// decode reads the JSON body of a call.
func decode[T any](c *call) (T, error) {
	var in T
	if len(c.body) == 0 {
		return in, nil
	}
	if err := json.Unmarshal(c.body, &in); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return in, unprocessable("Invalid request.\n\n" + err.Error())
		}
		return in, &apiError{Status: http.StatusBadRequest, Message: "Problems parsing JSON"}
	}
	return in, nil
}

// number reads a numeric path parameter.
func (c *call) number(name string) int64 {
	n, err := strconv.ParseInt(c.path[name], 10, 64)
	if err != nil {
		return -1 // no object has it
	}
	return n
}

// query is a parameter of the query string, or what GitHub assumes.
func (c *call) query(name, assume string) string {
	if v := c.r.URL.Query().Get(name); v != "" {
		return v
	}
	return assume
}

// page cuts the page that was asked for and notes the Link header.
func page[T any](c *call, all []T) []T {
	per := atoi(c.query("per_page", "30"), 30)
	per = max(1, min(per, 100))
	at := max(1, atoi(c.query("page", "1"), 1))
	last := max(1, (len(all)+per-1)/per)
	if at < last {
		c.link("next", "page", strconv.Itoa(at+1))
		c.link("last", "page", strconv.Itoa(last))
	}
	if at > 1 {
		c.link("prev", "page", strconv.Itoa(min(at-1, last)))
		c.link("first", "page", "1")
	}
	from := min((at-1)*per, len(all))
	return all[from:min(from+per, len(all))]
}

func (c *call) link(rel, param, value string) {
	u := url.URL{Path: c.r.URL.Path, RawPath: c.r.URL.RawPath}
	q := c.r.URL.Query()
	q.Set(param, value)
	u.RawQuery = q.Encode()
	c.links = append(c.links, fmt.Sprintf(`<http://%s%s>; rel="%s"`, c.r.Host, u.String(), rel))
}

func atoi(text string, otherwise int) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return otherwise
	}
	return n
}

// absolute is the URL of a request, as its sender wrote it.
func (s *Server) absolute(r *http.Request) string { return "http://" + r.Host + r.URL.RequestURI() }

// etagOf depends on the credential, as GitHub's does: a new token misses.
func etagOf(body []byte, credential string) string {
	sum := sha256.Sum256(append([]byte(credential+"\x00"), body...))
	return `W/"` + hex.EncodeToString(sum[:]) + `"`
}

func requestID() string {
	raw := make([]byte, 12)
	_, _ = rand.Read(raw) // crypto/rand never fails
	id := strings.ToUpper(hex.EncodeToString(raw))
	return id[:4] + ":" + id[4:10] + ":" + id[10:17] + ":" + id[17:]
}

// quota is the hourly limit of one installation on one resource.
type quota struct {
	quotaKey
	used  int
	reset time.Time
}

type quotaKey struct {
	installation int64
	resource     string
}

// coreResource is all of REST that is served.
const coreResource = "core"

func resourceOf(r *route) string {
	if r == &graphRoute {
		return "graphql"
	}
	return coreResource
}

const quotaLimit = 5000

func (s *Server) quotaOf(c caller, resource string) *quota {
	key := quotaKey{resource: resource}
	if c.installation != nil {
		key.installation = c.installation.ID
	}
	q := s.quota[key]
	if q == nil {
		q = &quota{quotaKey: key}
		s.quota[key] = q
	}
	if now := s.now(); !now.Before(q.reset) {
		q.used, q.reset = 0, now.Add(time.Hour)
	}
	return q
}

func (q *quota) stamp(h http.Header, now time.Time, counted, exhausted bool) {
	if counted {
		q.used++
	}
	remaining := max(0, quotaLimit-q.used)
	if exhausted {
		remaining = 0
	}
	h.Set("X-RateLimit-Limit", strconv.Itoa(quotaLimit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(remaining))
	h.Set("X-RateLimit-Used", strconv.Itoa(quotaLimit-remaining))
	if h.Get("X-RateLimit-Reset") == "" {
		h.Set("X-RateLimit-Reset", strconv.FormatInt(q.reset.Unix(), 10))
	}
	h.Set("X-RateLimit-Resource", q.resource)
}
