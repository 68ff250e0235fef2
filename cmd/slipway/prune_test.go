package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/app"
)

func TestPrune(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	end, ended := company.on(term, repo)
	term.ended(end, ended, 0, "succeeded")
	open := leftOpen(t, term, repo).build
	was := git(t, repo, "for-each-ref")

	left := func(build string) (found []string) {
		t.Helper()
		for _, dir := range []string{"builds", "work", "homes", "transcripts"} {
			if _, err := os.Lstat(filepath.Join(term.state, dir, build)); err == nil {
				found = append(found, dir)
			}
		}
		mirrors, err := filepath.Glob(filepath.Join(term.state, "mirrors", "*", "*.git"))
		must(t, err)
		for _, m := range mirrors {
			for ref := range strings.Lines(git(t, m, "for-each-ref", "--format=%(refname)", "refs/slipway/"+build)) {
				found = append(found, strings.TrimSpace(ref))
			}
		}
		return found
	}
	before, others := left(ended.Build), left(open)
	if len(before) < 4 || len(others) == 0 {
		t.Fatalf("there is nothing to see: %v, %v", before, others)
	}
	type line struct {
		app.Leftover
		Removed bool `json:"removed"`
	}
	if end := term.slipway("prune"); end.code != 0 || !strings.Contains(end.out, "nothing to remove: no build or review that ended more than 30 days ago") {
		t.Errorf("prune: exit %d\n%s%s", end.code, end.out, end.err)
	}
	if all := lines[line](t, term.slipway("prune", "--json", "--days", "1")); len(all) != 0 {
		t.Errorf("prune --days 1: %+v", all)
	}
	dry := lines[line](t, term.slipway("prune", "--json", "--days", "0", "--dry-run"))
	if len(dry) != 1 || dry[0].Build != ended.Build || dry[0].Removed || dry[0].Ended.IsZero() || len(dry[0].Refs)+len(dry[0].Directories) != len(before) {
		t.Errorf("prune --dry-run: %+v, want all of %v", dry, before)
	}
	if now := left(ended.Build); len(now) != len(before) {
		t.Errorf("a dry run removed something: %v", now)
	}
	text := term.slipway("prune", "--days", "0")
	if text.code != 0 || !strings.Contains(text.out, ended.Build+"  ended ") || !strings.Contains(text.out, "transcripts/"+ended.Build) || !strings.Contains(text.out, "refs/slipway/"+ended.Build+"/integration in mirrors/") {
		t.Errorf("prune --days 0: exit %d\n%s%s", text.code, text.out, text.err)
	}
	if now := left(ended.Build); len(now) != 0 {
		t.Errorf("still there: %v", now)
	}
	if now := left(open); len(now) != len(others) {
		t.Errorf("of the open build is left %v, was %v", now, others)
	}
	if strings.Contains(text.out, open) || git(t, repo, "for-each-ref") != was {
		t.Errorf("it touched what it must not:\n%s", text.out)
	}
	if end := term.slipway("prune", "--days", "0"); end.code != 0 || !strings.Contains(end.out, "nothing to remove") {
		t.Errorf("the second time: exit %d\n%s%s", end.code, end.out, end.err)
	}
	if end := term.slipway("status", ended.Build); end.code != 0 || !strings.Contains(end.out, "Succeeded") {
		t.Errorf("status of a pruned build: exit %d\n%s%s", end.code, end.out, end.err)
	}
	term.sound(repo)
}
