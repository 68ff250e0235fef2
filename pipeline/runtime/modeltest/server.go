// Package modeltest is a language model whose answers are written in Go: a
// server on loopback that speaks the Anthropic Messages API and OpenAI's chat
// completions and responses, streaming and not, and asks a Script what to
// answer. Everything in front of the model (CLI, runtime, pipeline) is real in a
// test that uses it.
//
//	model := modeltest.New(t, func(req modeltest.Request) modeltest.Turn {
//		if len(req.Results()) == 0 {
//			return modeltest.Turn{Calls: []modeltest.Call{{Tool: "Read", Input: map[string]string{"file_path": "a.txt"}}}}
//		}
//		return modeltest.Turn{Text: "I have read it."}
//	})
//	env := model.Env() // ANTHROPIC_BASE_URL=… and a key
package modeltest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Key is the API key that the server accepts.
const Key = "sk-ant-scripted-0123456789"

// A Script answers one request. It is called from several goroutines when
// agents run side by side, and tells them apart by what the request says.
type Script func(req Request) Turn

// A Turn is what the model answers: text and tool calls, or an error.
type Turn struct {
	Thinking string
	Text     string
	Calls    []Call
	Usage    Usage

	Status int           // HTTP status of an error; 0 is success
	Error  string        // its message
	Type   string        // its type, such as overloaded_error; empty is one that fits Status
	Retry  int           // Retry-After in seconds, on an error; 0 sends none
	Page   string        // a web page, with status 200, in place of the answer: what a broken proxy sends
	Reset  bool          // close the connection in place of an answer
	Stall  bool          // after the text, send nothing more until the client goes
	Wait   chan struct{} // answer only when it is closed; nil answers at once
}

// A Call is a tool that the model wants used.
type Call struct {
	Tool  string
	Input any // becomes a JSON object; in responses, a string is the text for a custom tool
}

// Usage is what the answer says that it took. Zero counts are sent as 10 tokens
// in and 5 out, so that a cost arises.
type Usage struct{ Input, Output, CacheRead, CacheWrite int }

// Server is the scripted model.
type Server struct {
	http   *httptest.Server
	script Script
	done   chan struct{}

	mu       sync.Mutex
	requests []Request
}

// New starts a model that ends with the test.
func New(t testing.TB, script Script) *Server {
	t.Helper()
	s := &Server{script: script, done: make(chan struct{})}
	mux := http.NewServeMux()
	// The base URL may have a path: scenarios are told apart by it.
	mux.HandleFunc("POST /", s.post)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	s.http = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(s.done)
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// URL is the base URL of the API.
func (s *Server) URL() string { return s.http.URL }

// Env is what leads a CLI to the server, as KEY=value; Secret is the key to it.
func (s *Server) Env() []string { return []string{"ANTHROPIC_BASE_URL=" + s.URL()} }

// Secret is the credential that the server asks for, as KEY=value.
func (s *Server) Secret() string { return "ANTHROPIC_API_KEY=" + Key }

// ChatEnv and ChatSecret are the same for a client of OpenAI's API, whose base
// URL has its version in it.
func (s *Server) ChatEnv() []string { return []string{"OPENAI_BASE_URL=" + s.URL() + "/v1"} }

// ChatSecret is the credential for a client of OpenAI's API.
func (s *Server) ChatSecret() string { return "OPENAI_API_KEY=" + Key }

// Requests returns the requests so far, in the order of their arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// A protocol is an API that the model is asked through.
type protocol struct {
	endpoint string // the end of its path
	read     func(body []byte) (Request, error)
	whole    func(req Request, turn Turn) any // the answer that is not streamed
	stream   func(w http.ResponseWriter, req Request, turn Turn)
	failure  func(turn Turn) any // the body of an error
}

var protocols = []protocol{messages, chat, responses}

func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/v1/messages/count_tokens") {
		writeJSON(w, http.StatusOK, map[string]int{"input_tokens": 10})
		return
	}
	i := slices.IndexFunc(protocols, func(p protocol) bool { return strings.HasSuffix(r.URL.Path, p.endpoint) })
	if i < 0 {
		messages.writeError(w, Turn{Status: http.StatusNotFound, Error: "no such endpoint: " + r.URL.Path})
		return
	}
	p := protocols[i]
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	req, err := p.read(body)
	if err != nil {
		p.writeError(w, Turn{Status: http.StatusBadRequest, Error: err.Error()})
		return
	}
	req.Scenario = strings.Trim(strings.TrimSuffix(r.URL.Path, p.endpoint), "/")
	req.Header = r.Header.Clone()
	s.mu.Lock()
	s.requests = append(s.requests, req)
	s.mu.Unlock()

	if !authorized(r.Header) {
		p.writeError(w, Turn{Status: http.StatusUnauthorized, Error: "invalid x-api-key"})
		return
	}
	s.answer(w, r, p, req, s.script(req))
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, p protocol, req Request, turn Turn) {
	if turn.Wait != nil {
		select {
		case <-turn.Wait:
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		}
	}
	switch {
	case turn.Reset:
		panic(http.ErrAbortHandler)
	case turn.Page != "":
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, turn.Page) // the client may be gone
	case turn.Status != 0:
		p.writeError(w, turn)
	case req.Stream:
		p.stream(w, req, turn)
		if turn.Stall {
			s.hold(r)
		}
	case turn.Stall:
		s.hold(r)
	default:
		writeJSON(w, http.StatusOK, p.whole(req, turn))
	}
}

// hold keeps a request open until its client or the test is gone.
func (s *Server) hold(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.done:
	}
}

func authorized(h http.Header) bool {
	return h.Get("X-Api-Key") == Key || h.Get("Authorization") == "Bearer "+Key
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the client may be gone
}

func (p protocol) writeError(w http.ResponseWriter, turn Turn) {
	if turn.Retry > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(turn.Retry))
	}
	if turn.Type == "" {
		turn.Type = map[int]string{
			http.StatusBadRequest:      "invalid_request_error",
			http.StatusUnauthorized:    "authentication_error",
			http.StatusForbidden:       "permission_error",
			http.StatusNotFound:        "not_found_error",
			http.StatusTooManyRequests: "rate_limit_error",
			529:                        "overloaded_error",
		}[turn.Status]
	}
	if turn.Type == "" {
		turn.Type = "api_error"
	}
	writeJSON(w, turn.Status, p.failure(turn))
}
