package durability_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// heldBuild starts a build whose agents are real processes and waits until the
// step is running, where it stays.
func heldBuild(t *testing.T, step string) (terminal, player, *process) {
	t.Helper()
	term, agents := newTerminal(t, fleet()), fleet().player(t)
	term.agents = agents.flags()
	agents.hold(t, step)
	p := term.build(t)
	eventually(t, time.Minute, func() string {
		select {
		case <-p.ended:
			t.Fatalf("it ended\n%s", p.said(t))
		default:
		}
		if term.asked(t, step) == 0 {
			return step + " does not run"
		}
		return ""
	})
	return term, agents, p
}

// TestInterruptOnceLetsRunningCallsFinish is Ctrl-C: what runs is finished and
// recorded, nothing starts any more, and the way on is told.
func TestInterruptOnceLetsRunningCallsFinish(t *testing.T) {
	t.Parallel()
	const step = "issue-03/round-1/iter-1/coder"
	term, agents, p := heldBuild(t, step)
	p.signal(t, os.Interrupt)
	eventually(t, 10*time.Second, func() string {
		if !strings.Contains(p.said(t), "finishing the agent calls that run") {
			return "it does not say what it does"
		}
		return ""
	})
	agents.release(t, step)
	if code := p.wait(t, time.Minute); code != 130 {
		t.Errorf("exit %d, want 130", code)
	}
	dead := term.see(t)
	if !strings.Contains(p.said(t), "slipway resume "+dead.job.ID) {
		t.Errorf("it does not say how to go on:\n%s", p.said(t))
	}
	if last := lastCall(dead); last != step {
		t.Errorf("the last recorded agent call is %q, want the one that ran, %s", last, step)
	}
	noneAlive(t, term.state, 5*time.Second)
	term.resume(t, dead)
	term.complete(t, "", dead)
}

// TestInterruptTwiceStopsRunningCalls is the impatient Ctrl-C.
func TestInterruptTwiceStopsRunningCalls(t *testing.T) {
	t.Parallel()
	const step = "issue-03/round-1/iter-1/coder"
	term, agents, p := heldBuild(t, step)
	p.signal(t, os.Interrupt)
	eventually(t, 10*time.Second, func() string {
		if !strings.Contains(p.said(t), "press Ctrl-C again") {
			return "it does not ask for the second one"
		}
		return ""
	})
	p.signal(t, os.Interrupt)
	if code := p.wait(t, 10*time.Second); code != 130 {
		t.Errorf("exit %d, want 130", code)
	}
	noneAlive(t, term.state, 5*time.Second)
	dead := term.see(t)
	if last := lastCall(dead); last == step {
		t.Error("the call that was stopped is recorded")
	}
	if !strings.Contains(p.said(t), "slipway resume "+dead.job.ID) {
		t.Errorf("it does not say how to go on:\n%s", p.said(t))
	}
	agents.release(t, step)
	term.resume(t, dead)
	term.complete(t, "", dead)
}

// TestTerminateIsNoLossEither is what a shutdown of the machine sends.
func TestTerminateIsNoLossEither(t *testing.T) {
	t.Parallel()
	const step = "issue-02/round-1/iter-1/coder"
	term, agents, p := heldBuild(t, step)
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t, 10*time.Second); code != 130 {
		t.Errorf("exit %d, want 130\n%s", code, p.said(t))
	}
	noneAlive(t, term.state, 5*time.Second)
	dead := term.see(t)
	agents.release(t, step)
	term.resume(t, dead)
	term.complete(t, "", dead)
}

// TestCancelEndsEveryProcessAndPublishesWhatLanded cancels from another process
// while an agent of the third issue sleeps.
func TestCancelEndsEveryProcessAndPublishesWhatLanded(t *testing.T) {
	t.Parallel()
	const step = "issue-03/round-1/iter-1/coder"
	term, _, p := heldBuild(t, step)
	id := term.see(t).job.ID
	asked := time.Now()
	cancel := start(t, term.state, nil, "cancel", id)
	if code := cancel.wait(t, 10*time.Second); code != 0 {
		t.Fatalf("cancel: exit %d\n%s", code, cancel.said(t))
	}
	if code := p.wait(t, 10*time.Second-time.Since(asked)); code != 4 {
		t.Errorf("exit %d, want 4\n%s", code, p.said(t))
	}
	noneAlive(t, term.state, 10*time.Second-time.Since(asked))
	t.Logf("cancelled and published within %s", time.Since(asked).Round(time.Millisecond))

	ended := term.see(t)
	if ended.job.State != queue.Done {
		t.Errorf("the job is %s: %s", ended.job.State, ended.job.Cause)
	}
	if last := lastCall(ended); last != "issue-03/issue_writer" {
		t.Errorf("the last agent call is %s, after the cancel", last)
	}
	b := term.account(t)
	if b.State != report.Canceled || b.Success {
		t.Errorf("state %s, success %t", b.State, b.Success)
	}
	term.published(t, ended)
	if got := git(t, term.repo, "show", b.Head+":list.txt"); got != "first\nalpha\nbeta\nlast" {
		t.Errorf("what landed is not published: %q", got)
	}
	term.clean(t, ended)
}

// TestCancelCommandEndsTheAgentAndPublishesWhatLanded cancels by a comment on
// the ticket, while an agent sleeps on the server.
func TestCancelCommandEndsTheAgentAndPublishesWhatLanded(t *testing.T) {
	t.Parallel()
	const step = "issue-03/round-1/iter-1/coder"
	agents := fleet().player(t)
	agents.hold(t, step)
	h := newHub(t, fleet())
	h.flags = agents.flags()
	h.serve(t)
	h.label(t)
	eventually(t, time.Minute, func() string {
		found, err := filepath.Glob(filepath.Join(h.state, "transcripts", "*", filepath.FromSlash(step)+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 || lines(t, found[0]) == 0 {
			return step + " does not run"
		}
		return ""
	})
	homes := filepath.Join(h.state, "homes")
	if len(alive(t, homes)) == 0 {
		t.Fatal("no agent runs that could be ended")
	}
	asked := time.Now()
	h.do(t, "comment", githubsim.CommentSpec{Repo: fullName, Number: h.ticket.Number, Body: "/cancel", By: maintainer}, nil)
	eventually(t, 10*time.Second, func() string {
		if found := alive(t, homes); len(found) > 0 {
			return "these processes are left:\n" + strings.Join(found, "\n")
		}
		return ""
	})
	t.Logf("the agent was gone within %s", time.Since(asked).Round(time.Millisecond))
	h.rest(t)
	whole := h.build(t)
	if last := lastCall(whole); last != "issue-03/issue_writer" {
		t.Errorf("the last agent call is %s, after the cancel", last)
	}
	var pulls []thing
	h.get(t, "/pulls?state=all", &pulls)
	if len(pulls) != 1 || !pulls[0].Draft {
		t.Fatalf("pull requests %+v, want a draft with what landed", pulls)
	}
	var checks struct {
		CheckRuns []thing `json:"check_runs"`
	}
	h.get(t, "/commits/"+pulls[0].Head.SHA+"/check-runs?filter=all", &checks)
	if len(checks.CheckRuns) != 1 || checks.CheckRuns[0].Conclusion != "cancelled" {
		t.Errorf("check runs %+v, want one that is cancelled", checks.CheckRuns)
	}
}

// lastCall is the key of the last recorded agent call.
func lastCall(s seen) (key string) {
	for _, e := range s.entries {
		if e.Runtime != "" {
			key = e.Key
		}
	}
	return key
}
