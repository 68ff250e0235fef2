package githubsim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// serve divides what is served: pages, git, the set-up side, GraphQL, and REST.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(path, "/_sim/"); ok {
		s.serveAdmin(w, r, rest)
		return
	}
	if id, ok := strings.CutPrefix(path, logRoot); ok && r.Method == http.MethodGet {
		s.serveLog(w, r, id)
		return
	}
	if path == "/api/graphql" || path == "/graphql" && !s.below {
		s.serveAPI(w, r, graphPath)
		return
	}
	if rest, ok := strings.CutPrefix(path, "/api/v3"); ok {
		s.serveAPI(w, r, rest)
		return
	}
	if at := strings.Index(r.URL.Path, ".git/"); at > 0 {
		if owner, name, ok := strings.Cut(r.URL.Path[1:at], "/"); ok && !strings.Contains(name, "/") {
			s.serveGit(w, r, owner, name, r.URL.Path[at+len(".git"):])
			return
		}
	}
	if at := newAppPath.FindStringSubmatch(path); at != nil && r.Method == http.MethodPost {
		s.serveManifest(w, r, at[1])
		return
	}
	if r.Method == http.MethodGet && s.servePage(w, r) {
		return
	}
	if s.below {
		http.NotFound(w, r) // a page, as a browser would get
		return
	}
	s.serveAPI(w, r, path)
}

// verbs are the set-up methods by the name that /_sim/ gives them.
func (s *Server) verbs() map[string]func(context.Context, []byte) ([]byte, error) {
	return map[string]func(context.Context, []byte) ([]byte, error){
		"app": verb(s.CreateApp), "install": verb(s.Install), "user": verb(s.CreateUser), "role": verb(s.SetRole),
		"repo": verb(s.CreateRepo), "ticket": verb(s.OpenTicket), "edit": verb(s.EditTicket),
		"label": verb(s.Label), "unlabel": verb(s.Unlabel), "comment": verb(s.Comment),
		"edit-comment": verb(s.EditComment), "delete-comment": verb(s.DeleteComment), "react": verb(s.React),
		"commit": verb(s.Commit), "pull": verb(s.OpenPull), "merge": verb(s.Merge), "review": verb(s.Review), "reply": verb(s.Reply), "resolve": verb(s.Resolve), "fork": verb(s.Fork),
		"press": verb(s.PressButton), "rerun": verb(s.RerunChecks), "fault": verb(s.AddFault), "clear-faults": verb(s.ClearFaults),
		"limits": verb(s.SetLimits), "expire-tokens": verb(s.ExpireTokens), "redeliver": verb(s.Redeliver), "ping": verb(s.Ping),
		"uninstall": verb(s.Uninstall), "suspend": verb(s.Suspend), "withdraw": verb(s.Withdraw), "rename": verb(s.Rename),
		"ci": verb(s.ScriptCI), "require": verb(s.Require), "rule": verb(s.AddRule),
	}
}

func verb[In, Out any](fn func(context.Context, In) (Out, error)) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, body []byte) ([]byte, error) {
		var in In
		if len(body) > 0 {
			decoder := json.NewDecoder(bytes.NewReader(body))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&in); err != nil {
				return nil, fmt.Errorf("read the request: %w", err)
			}
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		return json.Marshal(out)
	}
}

// serveAdmin answers POST of a verb, and GET of log, unknown and deliveries.
func (s *Server) serveAdmin(w http.ResponseWriter, r *http.Request, name string) {
	var raw []byte
	var err error
	switch do := s.verbs()[name]; {
	case r.Method == http.MethodPost && do != nil:
		var body []byte
		if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest)); err == nil {
			raw, err = do(r.Context(), body)
		}
	case r.Method == http.MethodGet && name == "log":
		var lines []LogLine
		if lines, err = s.Requests(); err == nil {
			raw, err = json.Marshal(selected(lines, r.URL.Query().Get("method"), r.URL.Query().Get("path")))
		}
	case r.Method == http.MethodGet && name == "unknown":
		raw, err = json.Marshal(append([]string{}, s.Unknown()...))
	case r.Method == http.MethodGet && name == "deliveries":
		raw, err = json.Marshal(s.Deliveries())
	default:
		http.Error(w, "no such verb: "+r.Method+" "+name, http.StatusNotFound)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw) // a client that went away misses it
}

// selected are the lines of a method (if given) whose path begins with path.
func selected(lines []LogLine, method, path string) []LogLine {
	out := []LogLine{}
	for _, line := range lines {
		if (method == "" || strings.EqualFold(method, line.Method)) && strings.HasPrefix(line.Path, path) {
			out = append(out, line)
		}
	}
	return out
}

// A Remote is the set-up side of a server in another process.
type Remote struct {
	URL string // of the server
}

// Do performs a verb of the set-up side: label, comment, ticket, app and so on,
// each with the input and the outcome of the Server's method (out may be nil).
func (m Remote) Do(ctx context.Context, verb string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return m.call(ctx, http.MethodPost, verb, bytes.NewReader(body), out)
}

// Log lists the requests of a method (empty: any) whose path begins with path.
func (m Remote) Log(ctx context.Context, method, path string) ([]LogLine, error) {
	var lines []LogLine
	err := m.call(ctx, http.MethodGet, "log", nil, &lines)
	return selected(lines, method, path), err
}

// Unknown lists the requests that the server had no route for.
func (m Remote) Unknown(ctx context.Context) ([]string, error) {
	var all []string
	err := m.call(ctx, http.MethodGet, "unknown", nil, &all)
	return all, err
}

// Deliveries lists every attempt to send a webhook.
func (m Remote) Deliveries(ctx context.Context) ([]Delivery, error) {
	var all []Delivery
	err := m.call(ctx, http.MethodGet, "deliveries", nil, &all)
	return all, err
}

func (m Remote) call(ctx context.Context, method, verb string, body io.Reader, out any) error {
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(m.URL, "/")+"/_sim/"+verb, body)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	r.Close = true // nothing stays open between two verbs
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", verb, strings.TrimSpace(string(raw)))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}
