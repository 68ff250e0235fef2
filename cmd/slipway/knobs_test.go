package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// each adds lines to the shell part of every role.
func (c cast) each(script string) cast {
	all := c.but(nil)
	for name := range c {
		if role, ok := strings.CutSuffix(name, ".json"); ok {
			all[role+".sh"] += script + "\n"
		}
	}
	return all
}

// four are a company with four issues that have nothing to do with each other.
func four() cast {
	return company.but(cast{
		"sprint_planner.json": planned(`{"name":"part-a"}`, `{"name":"part-b"}`, `{"name":"part-c"}`, `{"name":"part-d"}`),
		"coder.sh":            "echo here > \"part-${step%%/*}.txt\"\n",
		"lens.json":           `{"findings":[]}`,
	})
}

// A build ends within its budget, also when each call costs all that it may: what
// landed is published with its account, and the account is the journal's to the
// micro-dollar.
func TestBudgetAtATerminal(t *testing.T) {
	t.Parallel()
	for name, price := range map[string]string{"what a call may cost": "0.499", "an odd price": "0.486317"} { // the cast asks 0.001 by itself
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := checked(green)
			files[".github/slipway.yml"] += "limits: {usd_per_call: 0.5, max_parallel_issues: 1}\n"
			term, repo := newTerminal(t), newRepo(t, files)
			_, flags := four().each(`printf '{"type":"usage","cost_usd":` + price + `}\n'`).hire(t)
			end, d := term.build(append(flags, "--repo", repo, "--goal", "Greet people", "--budget", "5")...)
			term.ended(end, d, 3, "needs_human", "the budget asked for is $5, of which $1 are kept for verifying and publishing")
			spent := int64(math.Round(d.CostUSD * 1e6))
			if spent > 5_000_000 || spent < 4_000_000 {
				t.Errorf("it cost %d micro-dollars", spent)
			}
			if d.Branch == "" || d.Issues.Completed == 0 || d.Issues.Skipped == 0 || git(t, repo, "rev-parse", d.Branch) != d.Head {
				t.Errorf("what landed is not published: %+v", d)
			}
			if len(d.Verification.Criteria) != 1 || !d.Verification.Criteria[0].Passed {
				t.Errorf("what was set aside did not pay for the verification: %+v", d.Verification)
			}

			var b report.Build
			status := term.slipway("status", d.Build, "--json")
			must(t, json.Unmarshal([]byte(status.out), &b))
			var table, journal int64
			calls := 0
			for _, line := range b.Costs {
				table, calls = table+line.Micros, calls+line.Calls
			}
			store, err := queue.OpenSQLite(t.Context(), filepath.Join(term.state, "store"))
			must(t, err)
			defer func() { must(t, store.Close()) }()
			entries, err := store.Entries(t.Context(), d.Build, 0)
			must(t, err)
			for _, e := range entries {
				journal += e.CostMicros
			}
			if table != journal || b.CostMicros != journal || spent != journal || calls != d.AgentCalls {
				t.Errorf("the table has %d, the account %d, the last line %d, the journal %d; %d calls of %d", table, b.CostMicros, spent, journal, calls, d.AgentCalls)
			}
			if page := term.report(d.Build); !strings.Contains(page, fmt.Sprintf("**$%.2f**", float64(journal)/1e6)) {
				t.Errorf("the report does not say what it cost:\n%s", page)
			}
		})
	}
}

// configured is a terminal with a server configuration.
func configured(t *testing.T, yaml string) (term *terminal, flag []string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{"server.yml": yaml})
	return newTerminal(t), []string{"--config", filepath.Join(dir, "server.yml")}
}

// limits.max_parallel_agents bounds the agents that are at work at a time.
func TestAgentsAtATime(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{1: 1, 2: 2} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			term, config := configured(t, fmt.Sprintf("repository: {limits: {max_parallel_agents: %d}}\n", most))
			_, flags := four().each(`date "+at begin %s%N"; sleep 0.2; date "+at end %s%N"`).hire(t)
			end, d := term.build(slices.Concat(config, flags, []string{"--repo", newRepo(t, checked(green)), "--goal", "Greet people"})...)
			term.ended(end, d, 0, "succeeded")
			if got := term.busiest(d.Build); got != want {
				t.Errorf("%d agents were at work at a time, want %d", got, want)
			}
		})
	}
}

// busiest is how many of a build's agents were at work at a time, by what they
// printed when they began and ended.
func (t *terminal) busiest(build string) (most int) {
	t.Helper()
	var moments []string
	must(t, filepath.WalkDir(filepath.Join(t.state, "transcripts", build), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
		for lines := bufio.NewScanner(file); lines.Scan(); {
			for _, what := range []string{"begin", "end"} {
				if _, at, ok := strings.Cut(lines.Text(), "at "+what+" "); ok {
					moments = append(moments, at[:19]+" "+what)
				}
			}
		}
		return nil
	}))
	slices.Sort(moments)
	now := 0
	for _, m := range moments {
		if strings.HasSuffix(m, "begin") {
			now++
		} else {
			now--
		}
		most = max(most, now)
	}
	return most
}

// pipeline.keep_refs_days is what slipway prune goes by where no days are named.
func TestPruneKeepsRefsAsConfigured(t *testing.T) {
	t.Parallel()
	for days, removed := range map[int]bool{0: true, 1: false} {
		t.Run(fmt.Sprint(days), func(t *testing.T) {
			t.Parallel()
			term, config := configured(t, fmt.Sprintf("repository: {pipeline: {keep_refs_days: %d}}\n", days))
			end, d := company.on(term, newRepo(t, checked(green)))
			if d.Branch == "" {
				t.Fatalf("exit %d\n%s", end.code, end.err)
			}
			pruned := term.slipway(append(config, "prune")...)
			if pruned.code != 0 || strings.Contains(pruned.out, d.Build) != removed {
				t.Errorf("exit %d\n%s%s", pruned.code, pruned.out, pruned.err)
			}
		})
	}
}
