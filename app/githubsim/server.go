// Package githubsim is a stand-in for GitHub: the REST operations that Slipway
// uses, git over smart HTTP, signed webhooks, and three plain pages to look at.
//
// It holds state and speaks the real protocols. What it promises:
//
//   - A change is on disk before it is answered, so the process may be killed at
//     any instant and started again on the same directory.
//   - Webhooks are sent in order, once, from a durable outbox. Like GitHub it
//     never sends one again by itself; Redeliver, or GitHub's own operation, does.
//     Only a process that dies between sending and noting it repeats one.
//   - A request that it does not serve is answered 404 with the header
//     X-Sim-Unknown, logged as an error, and listed by Unknown.
//
// The CI of a repository is scripted: ScriptCI, or POST /_sim/ci with a CISpec,
// says which check runs and statuses of another App appear on which push, and
// how they end; Require, or POST /_sim/require with a Requirement, says which
// names a branch requires. A script acts without being asked while Deliver runs,
// and else before the next request is answered.
//
// What GitHub offers only in its browser (a person labels, comments, presses a
// button) and what only a test wants (faults, the log of requests) are methods
// of Server, and for other processes POST requests below /_sim/. That surface
// has no authentication: listen on a loopback address.
package githubsim

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Options configure a Server. Dir is required.
type Options struct {
	Addr  string           // where Run listens; empty means a free port of 127.0.0.1
	Dir   string           // state, git repositories and webhook bodies
	URL   string           // how others reach it; empty means as Run listens
	Log   *slog.Logger     // nil discards
	Clock func() time.Time // nil means time.Now
	TLS   *tls.Config      // Run speaks TLS with it; nil: plain HTTP
	// Enterprise has it be as GitHub Enterprise Server is: REST is below /api/v3
	// alone.
	Enterprise bool
}

// A Server is one stand-in and its state.
type Server struct {
	addr  string
	dir   string
	log   *slog.Logger
	clock func() time.Time
	tls   *tls.Config
	below bool // REST is below /api/v3 alone

	mu        sync.Mutex // guards all below
	state     *state
	url       string
	observers []func(Exchange)
	quota     map[quotaKey]*quota // the hourly limits
	kick      chan struct{}       // tells Deliver of a new webhook; buffered, never blocks
	cleared   chan struct{}       // closed when the faults are cleared

	pushes  sync.Mutex // one push at a time, so that its effects are told from another's
	journal *journal   // every request, for /_sim/log
	hooks   *http.Client
	gitHTTP string // path of git http-backend
}

// Open reads the state in o.Dir, which is created if need be.
func Open(o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("open the GitHub stand-in: no directory given")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the GitHub stand-in: %w", err)
	}
	for _, sub := range []string{"git", "webhooks", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("open the GitHub stand-in: %w", err)
		}
	}
	st, err := load(dir)
	if err != nil {
		return nil, err
	}
	log, err := openJournal(filepath.Join(dir, "requests.jsonl"))
	if err != nil {
		return nil, err
	}
	s := &Server{
		addr: o.Addr, dir: dir, log: o.Log, clock: o.Clock, url: o.URL, tls: o.TLS, below: o.Enterprise,
		state: st, journal: log, quota: map[quotaKey]*quota{}, kick: make(chan struct{}, 1), cleared: make(chan struct{}),
		hooks: &http.Client{
			Timeout:       10 * time.Second,
			Transport:     &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if s.addr == "" {
		s.addr = "127.0.0.1:0"
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	return s, nil
}

// Run listens, calls ready (if not nil) with the URL, and serves and delivers
// webhooks until ctx ends, which is not an error.
func (s *Server) Run(ctx context.Context, ready func(url string)) error {
	var listen net.ListenConfig
	ln, err := listen.Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	scheme := "http"
	if s.tls != nil {
		scheme, ln = "https", tls.NewListener(ln, s.tls)
	}
	s.mu.Lock()
	if s.url == "" {
		s.url = scheme + "://" + ln.Addr().String()
	}
	url := s.url
	s.mu.Unlock()
	if err := s.catchUp(ctx); err != nil {
		return errors.Join(err, ln.Close())
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	var background sync.WaitGroup
	background.Go(func() { s.Deliver(ctx) })
	background.Go(func() {
		<-ctx.Done()
		stop, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		if srv.Shutdown(stop) != nil {
			_ = srv.Close() // what is still open after a second is cut
		}
	})
	if ready != nil {
		ready(url)
	}
	err = srv.Serve(ln)
	cancel(err)
	background.Wait()
	s.hooks.CloseIdleConnections()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Close releases the log of requests. The state needs no closing.
func (s *Server) Close() error { return s.journal.close() }

// URL is how clients reach the server: its pages and git repositories are
// below it, and so is REST, also below /api/v3.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// Handler serves everything, for use without Run. Webhooks then wait for
// Deliver, and Options.URL should be set.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// now is the server's time, in UTC and whole seconds as GitHub tells it.
func (s *Server) now() time.Time { return s.clock().UTC().Truncate(time.Second) }

// change runs fn on the state and makes what it did durable.
func (s *Server) change(fn func(*state) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := fn(s.state); err != nil {
		return err
	}
	return s.commit()
}

// commit saves the state and wakes the sender of webhooks. The caller holds mu.
func (s *Server) commit() error {
	if err := s.save(); err != nil {
		s.log.Error("state not saved", "error", err)
		return err
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return nil
}
