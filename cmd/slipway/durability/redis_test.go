package durability_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// moveTo makes the servers keep their jobs in Redis.
func (h *hub) moveTo(t *testing.T, r *queuetest.Redis) {
	t.Helper()
	if err := h.store.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.store, err = queue.OpenRedis(t.Context(), queue.RedisOptions{URL: r.URL(), Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	h.env = append(h.env, "SLIPWAY_REDIS_URL="+r.URL())
}

// TestAWorkerTakesABuildOverFromAServer kills the server in the middle of a
// build whose store is Redis; a worker ends the build, on the same host or on one
// that shares nothing with it but Redis and GitHub.
func TestAWorkerTakesABuildOverFromAServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kill   string
		apart  bool
		within time.Duration
	}{
		"on the same host, while it plans":           {"after:6", false, 20 * time.Second},
		"on another host, when one issue has landed": {"after:land/0001/advanced", true, 35 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, pair())
			h.moveTo(t, queuetest.StartRedis(t))
			h.serve(t, "SLIPWAY_CRASH="+c.kill)
			h.label(t)
			h.server.wait(t, longRun)
			if !h.server.killed() {
				t.Fatalf("it was not killed\n%s", h.server.said(t))
			}
			dead := h.build(t)
			if c.apart {
				h.state = t.TempDir()
				dead.runs, dead.tests = map[string]int{}, nil // this host has none of it, and is to run none of it
			}
			h.server = start(t, h.state, h.env, append([]string{"worker", "--verbose", "--config", h.config}, h.flags...)...)
			eventually(t, c.within, func() string {
				if h.jobs(t, pipeline.KindBuild)[0].Attempt == dead.job.Attempt {
					return "nobody has taken the build over"
				}
				return ""
			})
			h.rest(t)
			h.complete(t, dead)
			if left := git(t, t.TempDir(), "ls-remote", h.sim.URL+"/"+fullName+".git", "refs/slipway/*"); left != "" {
				t.Errorf("a build that left nothing out left refs on the remote:\n%s", left)
			}
		})
	}
}

// fanOut receives webhooks and hands each to every replica at once, twice. It
// answers as the first replica that refused did, or else as the last.
func fanOut(t *testing.T, listen string, replicas ...string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		worst := make(chan int, 2*len(replicas))
		for _, to := range append(replicas, replicas...) {
			go func() {
				again, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+to+r.URL.Path, bytes.NewReader(body))
				if err != nil {
					panic(err) // the address is ours
				}
				again.Header = r.Header.Clone()
				resp, err := client.Do(again)
				if err != nil {
					t.Logf("%s does not answer: %v", to, err)
					worst <- http.StatusBadGateway
					return
				}
				_ = resp.Body.Close() // its status is all that counts
				worst <- resp.StatusCode
			}()
		}
		status := 0
		for range cap(worst) {
			status = max(status, <-worst)
		}
		w.WriteHeader(status)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-served); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		client.CloseIdleConnections()
	})
}

// Two servers receive every webhook twice each, and Redis is away while one
// comes: one build, and one answer to what was said meanwhile.
func TestReplicasBeforeOneRedis(t *testing.T) {
	t.Parallel()
	r := queuetest.StartRedis(t)
	h := newHub(t, pair())
	h.moveTo(t, r)
	front := h.listen
	other := *h
	h.listen, other.listen, other.state = freeAddress(t), freeAddress(t), t.TempDir()
	fanOut(t, front, h.listen, other.listen)
	h.serve(t)
	other.serve(t)
	h.label(t)
	if sent := h.sent(t, "issues", "labeled"); sent.StatusCode != http.StatusAccepted {
		t.Fatalf("a webhook was answered with %d", sent.StatusCode)
	}
	eventually(t, longRun, func() string {
		if b := h.build(t); b.job.State != queue.Done {
			return fmt.Sprintf("the build is %s: %s", b.job.State, b.job.Cause)
		}
		return ""
	})

	r.Kill()
	h.do(t, "comment", githubsim.CommentSpec{Repo: fullName, Number: h.ticket.Number, Body: "/status", By: maintainer}, nil)
	if sent := h.failed(t, "issue_comment"); sent.StatusCode != http.StatusInternalServerError {
		t.Errorf("without Redis a webhook was answered with %d, want 500", sent.StatusCode)
	}
	r.Start()
	other.server.signal(t, os.Interrupt)
	if code := other.server.wait(t, 20*time.Second); code != 0 {
		t.Errorf("the replica ended with %d\n%s", code, other.server.said(t))
	}
	other.serve(t) // its first sweep
	var comments []thing
	eventually(t, 40*time.Second, func() string {
		h.get(t, fmt.Sprintf("/issues/%d/comments", h.ticket.Number), &comments)
		if len(comments) < 4 {
			return fmt.Sprintf("%d comments, want the build's two, the command and its answer", len(comments))
		}
		return ""
	})
	h.rest(t)
	other.server.signal(t, os.Interrupt)
	if code := other.server.wait(t, 20*time.Second); code != 0 {
		t.Errorf("the replica ended with %d\n%s", code, other.server.said(t))
	}
	h.get(t, fmt.Sprintf("/issues/%d/comments", h.ticket.Number), &comments)
	if len(comments) != 4 {
		t.Errorf("%d comments, want the build's two, the command and its answer: %+v", len(comments), comments)
	}
	if n := len(h.jobs(t, pipeline.KindBuild)); n != 1 {
		t.Errorf("%d builds, want one", n)
	}
}

// failed waits for a webhook of an event that was not taken.
func (h *hub) failed(t *testing.T, event string) (found githubsim.Delivery) {
	t.Helper()
	eventually(t, 30*time.Second, func() string {
		all, err := h.sim.Deliveries(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if d.Event == event && !d.Pending && d.StatusCode != http.StatusAccepted {
				found = d
				return ""
			}
		}
		return "every webhook was taken"
	})
	return found
}
