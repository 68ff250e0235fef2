package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

// leftOpen is a build whose product manager thinks, killed while it does: an open
// build that asks for nothing.
func leftOpen(t *testing.T, term *terminal, repo string) *run {
	t.Helper()
	r := company.but(cast{"pm.sh": "sleep 60\n"}).start(term, repo)
	r.kill()
	return r
}

// An open build is told what it has a use for, and refuses the rest by name.
func TestSayToAnOpenBuild(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	id := leftOpen(t, term, repo).build
	for name, row := range map[string]struct {
		args []string
		code int
		want string
	}{
		"approve":          {[]string{"approve", id, "0123456"}, 2, "no plan of this build waits for an approval; see: slipway status " + id},
		"approve, no hash": {[]string{"approve", id}, 2, "no plan of this build waits"},
		"revise":           {[]string{"revise", id, "smaller"}, 2, "no plan of this build waits"},
		"reject":           {[]string{"reject", id}, 2, "no plan of this build waits"},
		"answer":           {[]string{"answer", id, "yes"}, 2, "no agent of this build has asked anything"},
		"steer":            {[]string{"steer", id, "mind", "the", "gap"}, 0, id + ": steer sent; "},
		"steer --json":     {[]string{"steer", id, "again", "--json"}, 0, `{"build":"` + id + `","sent":"steer","state":"`},
	} {
		t.Run(name, func(t *testing.T) {
			end := term.slipway(row.args...)
			if end.code != row.code || !strings.Contains(end.out+end.err, row.want) {
				t.Errorf("exit %d, want %d with %q:\n%s%s", end.code, row.code, row.want, end.out, end.err)
			}
		})
	}
	store, err := queue.OpenSQLite(t.Context(), filepath.Join(term.state, "store"))
	must(t, err)
	defer func() { must(t, store.Close()) }()
	lease, err := store.Claim(t.Context(), "a test", "local/"+id)
	must(t, err)
	signals, err := store.Extend(t.Context(), lease)
	must(t, err)
	var texts []string
	for _, s := range signals {
		var said pipeline.Said
		must(t, json.Unmarshal(s.Body, &said))
		if s.Kind != pipeline.SteerSignal || s.Reopen {
			t.Errorf("signal %+v", s)
		}
		texts = append(texts, said.Text)
	}
	if len(texts) != 2 || !strings.Contains(strings.Join(texts, ", "), "mind the gap") {
		t.Errorf("the build was told %q", texts)
	}
}

// A build that failed is taken up again by resume; what it then does is the
// engine's.
func TestResumeOfAFailedBuild(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	end, d := company.but(cast{"pm.sh": "echo ill >&2; exit 1\n"}).on(term, repo)
	term.ended(end, d, 1, "failed")
	for range 2 {
		if end := term.slipway("resume", d.Build); end.code != 1 || strings.Contains(end.err, "has ended") {
			t.Errorf("exit %d:\n%s%s", end.code, end.out, end.err)
		}
	}
	store, err := queue.OpenSQLite(t.Context(), filepath.Join(term.state, "store"))
	must(t, err)
	defer func() { must(t, store.Close()) }()
	jobs, err := store.List(t.Context(), queue.Query{IDs: []string{d.Build}})
	must(t, err)
	if len(jobs) != 1 || jobs[0].Attempt != 3 || jobs[0].State != queue.Done {
		t.Errorf("the job: %+v", jobs)
	}
}

func TestBuildOfAnIssueFile(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	file := filepath.Join(t.TempDir(), "issue.json")
	must(t, os.WriteFile(file, []byte(`{"name":"add-greet","title":"Greet people","description":"Write greet.sh.",
		"acceptance_criteria":[{"text":"greet.sh greets"}],"files_to_create":["greet.sh"],"guidance":{"risk_rationale":"new"}}`), 0o600))
	_, flags := company.but(cast{"pm.sh": "exit 1\n", "sprint_planner.sh": "exit 1\n"}).hire(t)
	end, d := term.build(append(flags, "--repo", repo, "--issue-file", file)...)
	term.ended(end, d, 0, "succeeded")
	if c := d.Verification.Criteria; len(c) != 1 || c[0].ID != "ac-1" || !c[0].Passed {
		t.Errorf("criteria: %+v", c)
	}
	if got := git(t, repo, "show", d.Branch+":greet.sh"); got != "echo hello" {
		t.Errorf("greet.sh = %q", got)
	}
}
