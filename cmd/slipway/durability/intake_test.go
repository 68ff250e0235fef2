package durability_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// intakeState makes the test binary a server that takes webhooks in and has no
// workers, with its store in this directory. It prints its address.
const intakeState = "SLIPWAY_TEST_INTAKE"

func takeIn(state string) error {
	store, err := queue.OpenSQLite(context.Background(), filepath.Join(state, "store"))
	if err != nil {
		return err
	}
	in, err := inbox.New(store, []string{hookSecret}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, in) //nolint:gosec // it is killed
}

// quiet is a GitHub on which everybody may build and nothing is ever there.
type quiet struct{ ids chan int64 }

func (quiet) Role(context.Context, forge.Repo, forge.Person) (forge.Role, error) {
	return forge.Write, nil
}
func (quiet) React(context.Context, forge.Repo, forge.Subject, string) error { return nil }
func (q quiet) EnsureComment(_ context.Context, _ forge.Repo, c forge.Comment) (forge.Comment, error) {
	c.ID = <-q.ids
	return c, nil
}
func (quiet) Unlabel(context.Context, forge.Repo, int, string) error { return nil }
func (quiet) PullTicket(context.Context, forge.Repo, int) (int, bool, error) {
	return 0, false, nil
}
func (quiet) Pull(context.Context, forge.Repo, int) (forge.Pull, bool, error) {
	return forge.Pull{}, false, nil
}
func (quiet) Review(context.Context, forge.Repo, int, int64) (forge.Review, bool, error) {
	return forge.Review{}, false, nil
}
func (quiet) EnsureAnswer(_ context.Context, _ forge.Repo, a forge.Answer) (forge.Answer, error) {
	return a, nil
}
func (quiet) Gone(context.Context, forge.Repo, forge.Ticket, int) (forge.Gone, error) {
	return forge.Gone{}, nil
}
func (quiet) Checks(context.Context, forge.Repo, string) ([]forge.Check, error) {
	return nil, nil
}
func (quiet) RestateCheck(context.Context, forge.Repo, forge.Check) error { return nil }
func (quiet) EnsureCheck(_ context.Context, _ forge.Repo, c forge.Check) (forge.Check, error) {
	return c, nil
}
func (quiet) OpenPull(context.Context, forge.Repo, int) (forge.Pull, bool, error) {
	return forge.Pull{}, false, nil
}

// TestHundredDeliveriesSurviveAKill sends signed webhooks to a server without
// workers and kills it. When workers come, each delivery is one job, and each
// ticket one build. It measures time, so it is not beside the others.
func TestHundredDeliveriesSurviveAKill(t *testing.T) {
	const deliveries = 100
	state := t.TempDir()
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), intakeState+"="+state)
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // it was killed
	})
	defer kill()
	address := make([]byte, 64)
	n, err := out.Read(address)
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + strings.TrimSpace(string(address[:n])) + "/webhook"

	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var senders sync.WaitGroup
	slots := make(chan struct{}, 5)
	for i := range deliveries {
		slots <- struct{}{}
		senders.Go(func() {
			defer func() { <-slots }()
			begin := time.Now()
			status, err := deliver(t.Context(), client, url, fmt.Sprintf("guid-%03d", i), labelled(i+1))
			if took := time.Since(begin); err != nil || status != http.StatusAccepted || took > time.Second {
				t.Errorf("delivery %d: %d, %v after %s", i, status, err, took)
			}
		})
	}
	senders.Wait()
	kill()

	store := openStore(t, state)
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	jobs, err := store.List(t.Context(), queue.Query{Kinds: []string{inbox.Kind}, Limit: 1000})
	if err != nil || len(jobs) != deliveries {
		t.Fatalf("%d rows, %v; want %d", len(jobs), err, deliveries)
	}
	ids := make(chan int64, 2*deliveries)
	for i := range cap(ids) {
		ids <- int64(i + 1)
	}
	h, err := handlers.New(handlers.Options{
		Jobs: store, GitHub: quiet{ids}, AppID: 1, Slug: "slipway",
		Account:  func(context.Context, queue.Job) (report.Build, error) { return report.Build{}, nil },
		Home:     func(_ context.Context, r pipeline.Request) (forge.Repo, error) { return r.Repo, nil },
		Approval: func(context.Context, queue.Job, string) (string, error) { return "", nil },
		Settings: func(context.Context, forge.Repo) ([]config.Setting, error) { return nil, nil },
		Proposed: func(context.Context, forge.Repo, int, string) ([]handlers.Proposal, error) { return nil, nil },
		Findings: func(context.Context, forge.Repo, forge.Pull) ([]finding.Entry, error) { return nil, nil },
		Reviewed: func(context.Context, queue.Job) (report.Review, error) { return report.Review{}, nil },
		Decide: func(ctx context.Context, _ string, decide func(context.Context) (handlers.Decision, error)) (handlers.Decision, error) {
			return decide(ctx)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	runs := make(chan string, 10*deliveries)
	working, stop := context.WithCancel(t.Context())
	defer stop()
	worker := queue.Worker{Store: store, Name: "after", Log: slog.New(slog.DiscardHandler), Slots: []queue.Slot{
		{Kinds: []string{inbox.Kind}, N: 16, Run: func(ctx context.Context, task *queue.Task) error {
			runs <- task.Job.ID
			var d inbox.Delivery
			if err := json.Unmarshal(task.Job.Payload, &d); err != nil {
				return err
			}
			return h.Handle(ctx, handlers.Delivery{ID: task.Job.ID, Event: d.Event, Payload: d.Body})
		}},
	}}
	var work sync.WaitGroup
	work.Go(func() {
		if err := worker.Run(working); err != nil {
			t.Error(err)
		}
	})
	eventually(t, longRun, func() string {
		open, err := store.List(t.Context(), queue.Query{Kinds: []string{inbox.Kind}, Unfinished: true, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(open) > 0 {
			return fmt.Sprintf("%d deliveries wait", len(open))
		}
		return ""
	})
	stop()
	work.Wait()
	if len(runs) != deliveries {
		t.Errorf("%d runs of %d deliveries", len(runs), deliveries)
	}
	builds, err := store.List(t.Context(), queue.Query{Kinds: []string{pipeline.KindBuild}, Limit: 1000})
	if err != nil || len(builds) != deliveries {
		t.Errorf("%d builds, %v; want %d", len(builds), err, deliveries)
	}
}

// labelled is the webhook of a label on a ticket.
func labelled(ticket int) string {
	return fmt.Sprintf(`{"action":"labeled","label":{"name":%q},"issue":{"number":%d,"title":"A ticket"},
		"repository":{"id":1,"name":%q,"full_name":%q,"owner":{"login":%q}},
		"installation":{"id":7},"sender":{"login":%q,"id":3,"type":"User"}}`, label, ticket, repoName, fullName, owner, maintainer)
}

func deliver(ctx context.Context, client *http.Client, url, guid, body string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, err
	}
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write([]byte(body))
	r.Header.Set("X-GitHub-Delivery", guid)
	r.Header.Set("X-GitHub-Event", "issues")
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// TestSameDeliveryFiveTimesIsOneRun has GitHub repeat itself, while two servers
// share the store.
func TestSameDeliveryFiveTimesIsOneRun(t *testing.T) {
	t.Parallel()
	h := newHub(t, pair())
	replica := *h
	replica.listen = freeAddress(t)
	replica.serve(t)
	h.serve(t)
	h.label(t)
	sent := h.sent(t, "issues", "labeled")
	for range 4 {
		h.do(t, "redeliver", githubsim.DeliveryRef{ID: sent.ID}, nil)
	}
	eventually(t, 30*time.Second, func() string {
		all, err := h.sim.Deliveries(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answered := 0
		for _, d := range all {
			if d.GUID == sent.GUID && d.StatusCode == http.StatusAccepted {
				answered++
			}
		}
		if answered != 5 {
			return fmt.Sprintf("%d of 5 are answered with 202", answered)
		}
		return ""
	})
	h.rest(t)
	replica.server.signal(t, os.Interrupt)
	if code := replica.server.wait(t, 20*time.Second); code != 0 {
		t.Errorf("the replica ended with %d\n%s", code, replica.server.said(t))
	}
	h.complete(t)
}

// TestLabelAndCommentAtOnceAreOneBuild asks twice, in two ways, within a second.
func TestLabelAndCommentAtOnceAreOneBuild(t *testing.T) {
	t.Parallel()
	const step = "plan/pm"
	agents := pair().player(t)
	agents.hold(t, step) // so that the build is open when the second one is read
	h := newHub(t, pair())
	h.flags = agents.flags()
	h.serve(t)
	h.label(t)
	h.do(t, "comment", githubsim.CommentSpec{Repo: fullName, Number: h.ticket.Number, Body: "/build", By: maintainer}, nil)
	h.sent(t, "issue_comment", "created")
	eventually(t, 30*time.Second, func() string {
		for _, j := range h.jobs(t, inbox.Kind) {
			if !j.State.Finished() {
				return "a webhook is not handled yet"
			}
		}
		return ""
	})
	agents.release(t, step)
	h.rest(t)
	whole := h.build(t)
	var comments, tracking, answers []thing
	h.get(t, fmt.Sprintf("/issues/%d/comments", h.ticket.Number), &comments)
	for _, c := range comments {
		switch {
		case c.User.Login == maintainer, strings.Contains(c.Body, " end=1 -->"):
		case strings.Contains(c.Body, "No second build was started"):
			answers = append(answers, c)
		default:
			tracking = append(tracking, c)
		}
	}
	if len(tracking) != 1 || !strings.Contains(tracking[0].Body, whole.job.ID) {
		t.Fatalf("tracking comments %+v, want one", tracking)
	}
	if len(answers) != 1 || !strings.Contains(answers[0].Body, tracking[0].HTMLURL) {
		t.Errorf("answers %+v, want one with the link %s", answers, tracking[0].HTMLURL)
	}
	var pulls []thing
	h.get(t, "/pulls?state=all", &pulls)
	if len(pulls) != 1 {
		t.Errorf("pull requests %+v, want one", pulls)
	}
}

// sent waits for the first webhook of an event that was answered.
func (h *hub) sent(t *testing.T, event, action string) (found githubsim.Delivery) {
	t.Helper()
	eventually(t, 30*time.Second, func() string {
		all, err := h.sim.Deliveries(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if d.Event == event && d.Action == action && !d.Pending {
				found = d
				return ""
			}
		}
		return "no " + event + " " + action + " was sent"
	})
	return found
}
