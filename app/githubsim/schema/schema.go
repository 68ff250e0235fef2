// Package schema judges what passes between Slipway and GitHub by GitHub's own
// descriptions: every REST request and response by its OpenAPI description,
// every webhook by its schema. Tests import it, and nothing else.
//
// rest.json, webhooks.json and examples.json.gz lie beside the package to be
// embedded. They are made of the npm packages @octokit/openapi,
// @octokit/openapi-webhooks and @octokit/webhooks-examples (MIT, by GitHub Inc.
// and Octokit contributors; see LICENSE.octokit) by the program in trim: make
// schemas.
package schema

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/slipway-dev/slipway/app/githubsim"
)

//go:generate go run ./trim -from ../../../node_modules -to .

//go:embed rest.json
var restJSON []byte

//go:embed webhooks.json
var webhooksJSON []byte

// A Judge knows GitHub's descriptions. It is safe for concurrent use.
type Judge struct {
	rest       *openapi3.T
	operations []operation

	mu       sync.Mutex // guards compiler and events
	compiler *jsonschema.Compiler
	events   map[string]*jsonschema.Schema
}

type operation struct {
	path  string
	item  *openapi3.PathItem
	match *regexp.Regexp
}

// spanning are the parameters whose value may hold slashes.
var spanning = regexp.MustCompile(`\\\{(path|ref|branch|basehead|tag)\\\}`)
var single = regexp.MustCompile(`\\\{(\w+)\\\}`)

// New parses the descriptions. The document as a whole is not validated: it is
// GitHub's, and does not pass.
func New() (*Judge, error) {
	doc, err := openapi3.NewLoader().LoadFromData(restJSON)
	if err != nil {
		return nil, fmt.Errorf("load GitHub's description: %w", err)
	}
	j := &Judge{rest: doc, events: map[string]*jsonschema.Schema{}}
	for path, item := range doc.Paths.Map() {
		text := spanning.ReplaceAllString(regexp.QuoteMeta(path), "(?P<$1>.*)")
		text = single.ReplaceAllString(text, "(?P<$1>[^/]+)")
		j.operations = append(j.operations, operation{path, item, regexp.MustCompile("^" + text + "/?$")})
	}
	hooks, err := jsonschema.UnmarshalJSON(bytes.NewReader(webhooksJSON))
	if err != nil {
		return nil, fmt.Errorf("parse the webhook schemas: %w", err)
	}
	j.compiler = jsonschema.NewCompiler()
	j.compiler.AssertFormat()
	// GitHub's own templates ({+path} and the like) fail the library's check.
	j.compiler.RegisterFormat(&jsonschema.Format{Name: "uri-template", Validate: func(any) error { return nil }})
	j.compiler.RegisterFormat(&jsonschema.Format{Name: "email", Validate: email})
	if err := j.compiler.AddResource("webhooks.json", hooks); err != nil {
		return nil, fmt.Errorf("load the webhook schemas: %w", err)
	}
	return j, nil
}

// email wants something on both sides of an @. The addresses of bots have
// brackets, which the library refuses, and GitHub sends them as they are.
func email(v any) error {
	text, ok := v.(string)
	if !ok {
		return nil
	}
	at := strings.LastIndexByte(text, '@')
	if at < 1 || at == len(text)-1 || strings.ContainsAny(text, " \t\r\n<>") {
		return fmt.Errorf("%q is no e-mail address", text)
	}
	return nil
}

// Exchange judges a request and its response. An operation that GitHub (as far
// as it was kept) does not have is an error; so is a webhook that Webhook
// refuses. A dropped connection is judged by its request alone.
func (j *Judge) Exchange(x githubsim.Exchange) error {
	if x.Event != "" {
		return j.Webhook(x.Event, x.Request)
	}
	u, err := url.Parse(x.URL)
	if err != nil {
		return fmt.Errorf("%s %s: %w", x.Method, x.URL, err)
	}
	path := strings.TrimPrefix(u.EscapedPath(), "/api/v3")
	if x.Method == http.MethodPost && (path == "/graphql" || path == "/api/graphql") {
		if err := j.graph(x); err != nil {
			return fmt.Errorf("GraphQL: %w\n%.2000s", err, x.Response)
		}
		return nil
	}
	route, params := j.find(x.Method, path)
	if route == nil {
		return fmt.Errorf("%s %s: GitHub has no such operation", x.Method, path)
	}
	if params["path"] == "" && strings.HasSuffix(route.Path, "{path}") {
		params["path"] = "." // the root, which the description cannot say
	}
	request := &http.Request{Method: x.Method, URL: u, Header: x.RequestHeader.Clone(), Body: io.NopCloser(bytes.NewReader(x.Request))}
	if len(x.Request) > 0 && strings.HasPrefix(strings.ToLower(request.Header.Get("Content-Type")), "text/plain") {
		return fmt.Errorf("%s %s: the body is not sent as JSON", x.Method, path)
	}
	input := &openapi3filter.RequestValidationInput{
		Request: request, PathParams: params, QueryParams: u.Query(), Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, SkipSettingDefaults: true,
			ExcludeRequestBody: empty(x.Request) || undescribed(route.Path, x.Request),
		},
	}
	refused := x.Status == http.StatusBadRequest || x.Status == http.StatusUnprocessableEntity
	if err := openapi3filter.ValidateRequest(context.Background(), input); err != nil && !refused {
		return fmt.Errorf("%s %s: the request: %w", x.Method, path, err)
	}
	if x.Status == 0 || x.Status == http.StatusNotModified {
		return nil
	}
	if err := j.response(route, input, x); err != nil {
		return fmt.Errorf("%s %s: the response %d: %w\n%.2000s", x.Method, path, x.Status, err, x.Response)
	}
	return nil
}

// graph judges the envelope of GraphQL; the stand-in judges the document that is
// in it. An answer has data or errors, and the status 200 with either.
func (j *Judge) graph(x githubsim.Exchange) error {
	var request struct {
		Query     string         `json:"query"`
		Variables map[string]any `json:"variables"`
	}
	switch err := strictly(x.Request, &request); {
	case err != nil:
		return err
	case request.Query == "":
		return errors.New("the request has no document")
	case x.Status == 0:
		return nil
	case x.Status != http.StatusOK:
		body, err := parse(x.Response)
		if err != nil {
			return err
		}
		return j.rest.Components.Schemas["basic-error"].Value.VisitJSON(body)
	}
	var answer struct {
		Data   map[string]any `json:"data"`
		Errors []struct {
			Type       string            `json:"type"`
			Path       []any             `json:"path"`
			Extensions map[string]string `json:"extensions"`
			Locations  []any             `json:"locations"`
			Message    string            `json:"message"`
		} `json:"errors"`
	}
	err := strictly(x.Response, &answer)
	if err == nil && answer.Data == nil && len(answer.Errors) == 0 {
		err = errors.New("the response has neither data nor errors")
	}
	return err
}

func strictly(raw []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// response judges the answer. Refusals that the operation does not list (an
// outage, a limit, a bad token) have GitHub's general shape.
func (j *Judge) response(route *routers.Route, input *openapi3filter.RequestValidationInput, x githubsim.Exchange) error {
	if x.Status >= http.StatusBadRequest && route.Operation.Responses.Status(x.Status) == nil {
		body, err := parse(x.Response)
		if err != nil {
			return err
		}
		return j.rest.Components.Schemas["basic-error"].Value.VisitJSON(body)
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: x.Status, Header: x.ResponseHeader,
		Body: io.NopCloser(bytes.NewReader(x.Response)), Options: input.Options,
	})
}

func parse(raw []byte) (any, error) {
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return body, nil
}

// empty tells a body that says nothing. The clients in use send null for it.
func empty(body []byte) bool {
	text := bytes.TrimSpace(body)
	return len(text) == 0 || string(text) == "null"
}

// undescribed tells the legal bodies that the description does not list: an
// array of label names, and a reply, of which GitHub reads only two fields.
func undescribed(path string, body []byte) bool {
	return strings.HasSuffix(path, "/labels") && bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) ||
		strings.HasSuffix(path, "/pulls/{pull_number}/comments") && bytes.Contains(body, []byte(`"in_reply_to":`))
}

// find is the operation of a path; of several patterns that match, the one
// with the most of it spelled out.
func (j *Judge) find(method, path string) (*routers.Route, map[string]string) {
	var best *routers.Route
	var params map[string]string
	literal := -1
	for _, o := range j.operations {
		values := o.match.FindStringSubmatch(path)
		todo := o.item.GetOperation(method)
		if values == nil || todo == nil {
			continue
		}
		found, spelled := map[string]string{}, len(path)
		for i, name := range o.match.SubexpNames() {
			if i == 0 {
				continue
			}
			spelled -= len(values[i])
			value, err := url.PathUnescape(values[i])
			if err != nil {
				return nil, nil
			}
			found[name] = value
		}
		if spelled > literal {
			literal, params = spelled, found
			best = &routers.Route{Spec: j.rest, Path: o.path, PathItem: o.item, Method: method, Operation: todo}
		}
	}
	return best, params
}

// Webhook judges the payload of an event.
func (j *Judge) Webhook(event string, payload []byte) error {
	body, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return fmt.Errorf("webhook %s: not JSON: %w", event, err)
	}
	name := strings.ReplaceAll(event, "_", "-")
	if fields, ok := body.(map[string]any); ok {
		if action, ok := fields["action"].(string); ok {
			name += "-" + strings.ReplaceAll(action, "_", "-")
		}
	}
	compiled, err := j.event(name)
	if err != nil {
		return fmt.Errorf("webhook %s: GitHub has no such event: %w", name, err)
	}
	if err := compiled.Validate(body); err != nil {
		return fmt.Errorf("webhook %s: %w", name, err)
	}
	return nil
}

func (j *Judge) event(name string) (*jsonschema.Schema, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if known := j.events[name]; known != nil {
		return known, nil
	}
	compiled, err := j.compiler.Compile("webhooks.json#/webhooks/" + name + "/post/requestBody/content/application~1json/schema")
	if err == nil {
		j.events[name] = compiled
	}
	return compiled, err
}

// Watch judges everything that passes through s from now on, and fails the
// test for each violation and for each request that s had no route for.
func Watch(t testing.TB, s *githubsim.Server) {
	t.Helper()
	j, err := New()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []error
	s.Observe(func(x githubsim.Exchange) {
		err := j.Exchange(x)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, err)
	})
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if err := errors.Join(all...); err != nil {
			t.Errorf("what passed between us and GitHub is not what GitHub describes:\n%v", err)
		}
		if unknown := s.Unknown(); len(unknown) > 0 {
			t.Errorf("requests without a route: %q", unknown)
		}
	})
}

// Start runs a watched server on a free port until the test ends.
func Start(t testing.TB, o githubsim.Options) *githubsim.Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := githubsim.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(string) { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	})
	Watch(t, s)
	return s
}
