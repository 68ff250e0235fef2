package simulate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// times are the instants of one issue, zero where it did not come so far.
type times struct{ started, kept, landed time.Time }

// account compares what happened with what had to.
func (s *Simulation) account(entries []queue.Entry, final report.Build) (Result, error) {
	r := Result{Name: s.plan.Name, State: final.State, MaxParallel: s.agents.most}
	ready, issues, err := timeline(entries, final)
	if err != nil {
		return r, err
	}
	end := ready
	for _, t := range issues {
		for _, at := range []time.Time{t.kept, t.landed} {
			if at.After(end) {
				end = at
			}
		}
		if !t.landed.IsZero() {
			r.Merges++
		}
	}
	calls := map[string][]call{}
	for _, c := range s.agents.calls {
		calls[c.key] = append(calls[c.key], c)
		r.AgentCalls++
	}
	tasks := s.tasks(final, calls, issues)
	bound, err := schedule(tasks, s.options.MaxParallelIssues)
	if err != nil {
		return r, err
	}
	lower, err := lowerBound(tasks, s.options.MaxParallelIssues)
	if err != nil {
		return r, err
	}
	r.MakespanMS, r.BoundMS, r.LowerBoundMS = end.Sub(ready).Milliseconds(), bound.Milliseconds(), lower.Milliseconds()
	if bound > 0 {
		r.Ratio = math.Round(1000*float64(end.Sub(ready))/float64(bound)) / 1000
	}
	for _, is := range final.Issues {
		r.Lanes = append(r.Lanes, lane(is, ready, issues[is.Name], calls[key(is)]))
	}
	return r, nil
}

// timeline reads from the journal when the execution could begin and what
// became of each issue, by name.
func timeline(entries []queue.Entry, final report.Build) (ready time.Time, issues map[string]times, err error) {
	issues = map[string]times{}
	names := map[string]string{}
	for _, is := range final.Issues {
		names[key(is)] = is.Name
	}
	for _, e := range entries {
		first, rest, _ := strings.Cut(e.Key, "/")
		switch {
		case e.Key == "plan/kept" || e.Key == "init":
			ready = e.At
		case first == "start":
			t := issues[names[rest]]
			t.started = e.At
			issues[names[rest]] = t
		case names[first] != "" && rest == "kept":
			t := issues[names[first]]
			t.kept = e.At
			issues[names[first]] = t
		case first == "land" && strings.HasSuffix(rest, "/advanced"):
			var out struct {
				Landed []struct {
					Name string `json:"name"`
				} `json:"landed"`
			}
			if err := json.Unmarshal(e.Outcome, &out); err != nil {
				return ready, nil, fmt.Errorf("read %s: %w", e.Key, err)
			}
			for _, l := range out.Landed {
				t := issues[l.Name]
				t.landed = e.At
				issues[l.Name] = t
			}
		}
	}
	for _, is := range final.Issues {
		t := issues[is.Name]
		if is.Merge != "" && (t.started.IsZero() || t.kept.IsZero() || t.landed.IsZero()) {
			return ready, nil, fmt.Errorf("the journal does not say when %s landed", is.Name)
		}
	}
	return ready, issues, nil
}

// key is what the journal's keys of an issue begin with.
func key(is report.Issue) string { return graph.Issue{Number: is.Number}.Key() }

// tasks are the issues that ran, each with the planned time of the calls that
// it made. An issue waits for those of its dependencies that landed.
func (s *Simulation) tasks(final report.Build, calls map[string][]call, issues map[string]times) []task {
	var out []task
	for _, is := range final.Issues {
		if issues[is.Name].started.IsZero() {
			continue
		}
		t := task{issue: graph.Issue{Name: is.Name, Number: is.Number}, failed: issues[is.Name].landed.IsZero()}
		if planned, ok := s.graph.Issue(is.Name); ok {
			t.issue.FilesToModify = planned.Files()
		}
		for _, d := range is.DependsOn {
			if !issues[d].landed.IsZero() {
				t.issue.DependsOn = append(t.issue.DependsOn, d)
			}
		}
		beside := map[string]time.Duration{} // of QA, by iteration
		made := slices.SortedFunc(slices.Values(calls[key(is)]), func(a, b call) int { return strings.Compare(a.step, b.step) })
		for _, c := range made {
			iteration := strings.TrimSuffix(c.step, "/"+c.role)
			switch c.role {
			case pipeline.Merger.Name:
				t.landing += c.planned
			case coding.QA.Name, coding.Reviewer.Name: // they work side by side
				t.work += max(0, c.planned-beside[iteration])
				beside[iteration] = max(beside[iteration], c.planned)
			default:
				t.work += c.planned
			}
		}
		out = append(out, t)
	}
	return out
}

// lane is what is drawn of an issue.
func lane(is report.Issue, ready time.Time, t times, calls []call) Lane {
	l := Lane{Number: is.Number, Name: is.Name}
	bar := func(kind BarKind, from, to time.Time) {
		if !from.IsZero() && to.After(from) {
			l.Bars = append(l.Bars, Bar{Kind: kind, From: from.Sub(ready), To: to.Sub(ready)})
		}
	}
	bar(InLane, t.started, t.kept)
	bar(Landing, t.kept, t.landed)
	for _, c := range calls {
		bar(kindOf(c.role), c.start, c.end)
	}
	slices.SortStableFunc(l.Bars, func(a, b Bar) int { return cmp.Compare(a.From, b.From) })
	return l
}

func kindOf(role string) BarKind {
	switch role {
	case coding.Reviewer.Name, coding.QA.Name, coding.Synthesizer.Name:
		return Judging
	case pipeline.Merger.Name:
		return Mending
	case issueAdvisor, retryAdvisor:
		return Advice
	}
	return Coding
}
