package githubsim

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// serveGit answers git's smart HTTP for the repository that rest of the path
// speaks of. The body is spooled: CGI wants its length, and git sends anything
// above 1 MiB in chunks.
func (s *Server) serveGit(w http.ResponseWriter, r *http.Request, owner, name, rest string) {
	service := r.URL.Query().Get("service")
	if r.Method == http.MethodPost {
		service = strings.TrimPrefix(rest, "/")
	}
	writing := service == "git-receive-pack"
	repo, who, err := s.admitGit(r, owner, name, writing)
	if refusal, ok := errors.AsType[*apiError](err); ok {
		if refusal.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
		}
		s.logGit(r, refusal.Status)
		http.Error(w, refusal.Message, refusal.Status)
		return
	}
	if service != "git-receive-pack" && service != "git-upload-pack" {
		s.logGit(r, http.StatusNotFound)
		http.Error(w, "only smart HTTP is served", http.StatusNotFound)
		return
	}
	fault := s.fault(r.Method, r.URL.Path, r.URL.RawQuery)
	if !fault.before(r.Context(), s) {
		s.logGit(r, 0)
		panic(http.ErrAbortHandler)
	}
	if refusal, ok := errors.AsType[*apiError](fault.refusal(s.now())); ok {
		s.logGit(r, refusal.Status)
		http.Error(w, refusal.Message, refusal.Status)
		return
	}
	spooled, err := s.spool(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer func() {
		if err := errors.Join(spooled.Close(), os.Remove(spooled.Name())); err != nil {
			s.log.Error("spooled request not removed", "error", err)
		}
	}()
	program, err := s.gitHTTPBackend(r.Context())
	if err != nil {
		s.log.Error("git not served", "error", err)
		http.Error(w, "git is not available", http.StatusInternalServerError)
		return
	}
	inner := "/" + strings.ToLower(name) + ".git" + rest
	if !writing || r.Method != http.MethodPost {
		direct := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		s.runGit(direct, r, repo, who, program, inner)
		s.logGit(r, direct.status)
		return
	}
	answer := s.push(r, repo, who, program, inner)
	if fault.Kind == FaultDropAfter {
		s.logGit(r, 0)
		panic(http.ErrAbortHandler)
	}
	s.logGit(r, answer.status)
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes()) // a client that went away misses it
}

// push keeps git's answer until its effects are told, so that whoever pushed
// finds them.
func (s *Server) push(r *http.Request, repo *repo, who caller, program, path string) *held {
	s.pushes.Lock()
	defer s.pushes.Unlock()
	answer := &held{header: http.Header{}, status: http.StatusOK}
	s.runGit(answer, r, repo, who, program, path)
	ctx := context.WithoutCancel(r.Context()) // git has moved the refs, whoever listens
	if err := s.change(func(*state) error { return s.settle(ctx, repo, who.app.bot()) }); err != nil {
		s.log.Error("push not settled", "repository", repo.full(), "error", err)
	}
	return answer
}

// runGit runs git http-backend as CGI.
func (s *Server) runGit(w http.ResponseWriter, r *http.Request, repo *repo, who caller, program, path string) {
	env := s.gitEnv("GIT_HTTP_EXPORT_ALL=1", "GIT_PROJECT_ROOT="+filepath.Dir(s.gitDir(repo)))
	if who.may("workflows", "write") {
		env = append(env, "SIM_WORKFLOWS=allow")
	}
	if protocol := r.Header.Get("Git-Protocol"); protocol != "" {
		env = append(env, "GIT_PROTOCOL="+protocol)
	}
	if who.app != nil {
		env = append(env, "REMOTE_USER="+who.app.bot())
	}
	backend := &cgi.Handler{Path: program, Dir: s.dir, Env: env, Stderr: io.Discard}
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.URL.RawPath = path, ""
	inner.Header.Del("Content-Encoding")
	inner.TransferEncoding = nil
	backend.ServeHTTP(w, inner)
}

// admitGit checks the credential that git sent.
func (s *Server) admitGit(r *http.Request, owner, name string, writing bool) (*repo, caller, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who, err := s.identify(r)
	if err != nil {
		return nil, who, &apiError{Status: http.StatusUnauthorized, Message: "Invalid username or token."}
	}
	repo := s.state.repo(owner, name)
	if repo != nil && repo.Public && !writing {
		return repo, who, nil
	}
	switch {
	case who.token == nil:
		return nil, who, &apiError{Status: http.StatusUnauthorized, Message: "Repository not found."}
	case repo == nil || !who.sees(repo) || !who.may("contents", "read"):
		return nil, who, &apiError{Status: http.StatusNotFound, Message: "Repository not found."}
	case writing && !who.may("contents", "write"):
		return nil, who, &apiError{Status: http.StatusForbidden, Message: "Write access to repository not granted."}
	}
	return repo, who, nil
}

// spool copies the body to a file and puts that in its place.
func (s *Server) spool(r *http.Request) (*os.File, error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fmt.Errorf("unpack the request: %w", err)
		}
		body = unpacked
	}
	f, err := os.CreateTemp(filepath.Join(s.dir, "tmp"), "git-*")
	if err != nil {
		return nil, fmt.Errorf("spool the request: %w", err)
	}
	n, err := io.Copy(f, body)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool the request: %w", err), f.Close(), os.Remove(f.Name()))
	}
	r.Body, r.ContentLength = io.NopCloser(f), n
	r.Header.Set("Content-Length", strconv.FormatInt(n, 10))
	return f, nil
}

func (s *Server) logGit(r *http.Request, status int) {
	line := LogLine{At: s.now(), Method: r.Method, Path: r.URL.RequestURI(), Route: "git", Status: status}
	if err := s.journal.add(line); err != nil {
		s.log.Error("request not logged", "error", err)
	}
}

// statusWriter remembers the status for the log.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader passes on and remembers.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// held is an answer that is kept back.
type held struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header is the header kept.
func (h *held) Header() http.Header { return h.header }

// Write keeps p.
func (h *held) Write(p []byte) (int, error) { return h.body.Write(p) }

// WriteHeader keeps the status.
func (h *held) WriteHeader(status int) { h.status = status }
