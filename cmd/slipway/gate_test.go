package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// atGate returns when the run waits for somebody, with its account.
func (r *run) atGate(state report.State) (b report.Build) {
	r.Helper()
	until(r.T, time.Minute, "the build does not come to wait", func() bool {
		end := r.slipway("status", r.build, "--json")
		return json.Unmarshal([]byte(end.out), &b) == nil && b.State == state
	})
	return b
}

// A plan at a terminal: what is wrong is refused by name, what is right goes on
// in the process that waits.
func TestPlanGateAtATerminal(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	r := company.start(term, repo, "--approval", "plan")
	b := r.atGate(report.WaitingApproval)
	hash := b.Gate.Hash[:12]
	base := git(t, repo, "rev-parse", "main")
	for _, row := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"status", []string{"status", r.build}, 0, "slipway approve " + r.build + " " + hash},
		{"list", []string{"list"}, 0, "waiting_approval"},
		{"no hash", []string{"approve", r.build}, 2, "approve " + hash},
		{"another hash", []string{"approve", r.build, "fedcba9"}, 2, "has the hash " + hash + ", not fedcba9"},
		{"an answer", []string{"answer", r.build, "yes"}, 2, "no agent of this build has asked anything"},
	} {
		if end := r.slipway(row.args...); end.code != row.code || !strings.Contains(end.out+end.err, row.want) {
			t.Errorf("%s: exit %d, want %d with %q:\n%s%s", row.name, end.code, row.code, row.want, end.out, end.err)
		}
	}
	git(t, repo, "commit", "--quiet", "--allow-empty", "--message=Move on")
	if end := r.slipway("approve", r.build, hash); end.code != 2 || !strings.Contains(end.err, "main moved since the plan was made") {
		t.Errorf("a base that moved: exit %d\n%s%s", end.code, end.out, end.err)
	}
	git(t, repo, "reset", "--quiet", "--hard", base)
	if end := r.slipway("approve", r.build, hash[:7]); end.code != 0 || !strings.Contains(end.out, "approve sent") {
		t.Fatalf("approve: exit %d\n%s%s", end.code, end.out, end.err)
	}
	end := r.wait()
	d, _ := term.stream(end)
	term.ended(end, d, 0, "succeeded")
	for _, want := range []string{
		`"event":"gate"`, `"key":"waiting_approval","state":"waiting"`, `"type":["slipway approve ` + r.build + " " + hash + `"`,
		`"key":"waiting_approval","state":"over"`,
	} {
		if strings.Count(end.out, want) < 1 {
			t.Errorf("the stream does not say %s", want)
		}
	}
}

// A build that waits is handed back by Ctrl-C, keeps waiting, and a second
// terminal that stays with it sees the rejection.
func TestAWaitingBuildChangesHands(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	r := company.start(term, repo, "--approval", "plan")
	r.atGate(report.WaitingApproval)
	must(t, r.cmd.Process.Signal(os.Interrupt))
	if end := r.wait(); end.code != 130 || !strings.Contains(end.err, "slipway resume "+r.build) {
		t.Fatalf("exit %d\n%s", end.code, end.err)
	}
	r.atGate(report.WaitingApproval)
	second := r.command("resume", r.build, "--json")
	pipe, err := second.StdoutPipe()
	must(t, err)
	must(t, second.Start())
	var out bytes.Buffer
	lines := bufio.NewReader(io.TeeReader(pipe, &out))
	for !strings.Contains(out.String(), `"state":"waiting"`) { // it has taken the build up and stays with it
		_, err := lines.ReadString('\n')
		must(t, err)
	}
	if end := r.slipway("reject", r.build, "two", "tickets"); end.code != 0 {
		t.Fatalf("reject: exit %d\n%s%s", end.code, end.out, end.err)
	}
	_, err = io.Copy(io.Discard, lines)
	must(t, err)
	_ = second.Wait() // its code is looked at below
	end := typed{code: second.ProcessState.ExitCode(), out: out.String()}
	d, _ := term.stream(end)
	term.ended(end, d, 4, "cancelled", "the plan was rejected: two tickets")
}

// A plan on GitHub: it is shown in a comment of its own, only people with the
// role answer it, and only by its hash.
func TestPlanGateOnGitHub(t *testing.T) {
	t.Parallel()
	s := newServer(t, company)
	_, err := s.sim.Commit(t.Context(), githubsim.CommitSpec{
		Repo: fullName, Branch: "main", Message: "Ask first", By: "mira",
		Files: map[string]string{".github/slipway.yml": "commands:\n  test: sh check.sh\nbuild:\n  approval: plan\n"},
	})
	must(t, err)
	s.says("mira", "/build")
	wrote := func(what string) func() bool {
		return func() bool {
			for _, x := range s.changes() {
				if strings.Contains(string(x.Request), what) {
					return true
				}
			}
			return false
		}
	}
	var b report.Build
	until(t, time.Minute, "the build does not come to wait", func() bool {
		builds := s.jobs(pipeline.KindBuild)
		if len(builds) != 1 || builds[0].State != queue.Parked {
			return false
		}
		var err error
		b, err = pipeline.Read(t.Context(), s.store, builds[0].ID)
		return err == nil && b.State == report.WaitingApproval
	})
	hash := b.Gate.Hash[:12]
	if !wrote("waits for approval")() || !wrote("`/approve "+hash+"`")() {
		t.Errorf("the plan was not shown: %+v", s.changes())
	}
	for _, row := range []struct{ by, line, want string }{
		{"rita", "/approve " + hash, "needs the role **write**"},
		{"mira", "/approve", "An approval names the plan that was read"},
		{"mira", "/approve fedcba9", "not fedcba9"},
		{"mira", "/answer yes", "No agent of this build has asked anything"},
		{"mira", "/resume", "has not ended"},
		{"mira", "/status", "Waits for"},
	} {
		s.says(row.by, row.line)
		until(t, 30*time.Second, row.line+" is not answered with "+row.want, wrote(row.want))
	}
	s.says("mira", "/approve "+hash)
	s.rest()
	final, err := pipeline.Read(t.Context(), s.store, b.ID)
	must(t, err)
	if final.State != report.Succeeded || final.Pull == nil {
		t.Errorf("the build: %s %s", final.State, final.Summary)
	}
}
