package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// agents is a runtime whose agents take their time, write a small file and
// answer as the plan says. Who is asked what depends on the call's step alone,
// so that a resumed build hears the same again.
type agents struct {
	seed    uint64
	byKey   map[string]Issue // by issue-07
	typical Issue            // for issues that a split or a replan adds

	mu    sync.Mutex
	calls []call
	busy  int
	most  int         // calls at work at a time
	heard func(n int) // is told of the n-th call when it begins; may be nil
	begun int

	owns   map[string]string // file, by key of the issue
	places []place           // the one that changed hands longest ago first
}

// A call is one that was answered.
type call struct {
	key        string // of its issue, such as issue-07; empty when it has none
	step, role string
	planned    time.Duration
	start, end time.Time
}

func newAgents(p Plan, g *graph.Graph) *agents {
	a := &agents{seed: p.Seed, byKey: map[string]Issue{}, owns: map[string]string{}}
	for _, is := range p.Issues {
		node, _ := g.Issue(is.Name) // g is made of p
		a.byKey[node.Key()] = is
		a.typical.CoderMS += is.CoderMS
		a.typical.ReviewerMS += is.ReviewerMS
	}
	a.typical.CoderMS /= int64(len(p.Issues))
	a.typical.ReviewerMS /= int64(len(p.Issues))
	return a
}

// Run plays one call.
func (a *agents) Run(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
	key, _, _ := strings.Cut(c.Step, "/")
	is, planned := a.byKey[key]
	if !planned {
		is = a.typical
		is.Name = key
	}
	done := call{key: key, step: c.Step, role: c.Role, planned: is.takes(c.Role), start: a.enter()}
	defer func() { a.leave(done) }()
	if err := sleep(ctx, done.planned); err != nil {
		return runtime.Result{}, err
	}
	answer, err := a.answer(is, c)
	if err != nil {
		return runtime.Result{}, err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return runtime.Result{}, fmt.Errorf("answer %s: %w", c.Step, err)
	}
	return runtime.Result{Output: text, Turns: 1, Stop: "end_turn"}, nil
}

func (a *agents) enter() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy++
	a.most = max(a.most, a.busy)
	a.begun++
	if a.heard != nil {
		a.heard(a.begun)
	}
	return time.Now()
}

func (a *agents) leave(c call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy--
	c.end = time.Now()
	a.calls = append(a.calls, c)
}

// takes is how long a call of the role lasts.
func (is Issue) takes(role string) time.Duration {
	ms := int64(0)
	switch role {
	case coding.Coder.Name:
		ms = is.CoderMS
	case coding.Reviewer.Name:
		ms = is.ReviewerMS
	case coding.QA.Name:
		ms = is.QAMS
	case coding.Synthesizer.Name:
		ms = is.SynthesizerMS
	case pipeline.Merger.Name:
		ms = is.MergerMS
	case issueAdvisor:
		ms = is.AdvisorMS
	}
	return time.Duration(ms) * time.Millisecond
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Roles that are known by name here: the engine's declarations are elsewhere.
const (
	issueAdvisor = "issue_advisor"
	replanner    = "replan"
	retryAdvisor = "retry_advisor"
)

// answer is what the agent of a call says, after it has done its work.
func (a *agents) answer(is Issue, c runtime.Call) (any, error) {
	round, iteration := counts(c.Step)
	switch c.Role {
	case coding.Coder.Name:
		written, err := a.work(c.Dir, is, c.Step)
		if err != nil {
			return nil, &runtime.Error{Class: runtime.Refused, Reason: "the simulated Coder cannot write: " + err.Error(), Err: err}
		}
		return coding.Submission{
			FilesChanged: written, Summary: "Attempt " + word(iteration) + " is written.", Complete: !a.fails(is, c.Step),
		}, nil
	case coding.QA.Name:
		return coding.QAResult{Passed: iteration >= is.Iterations, Summary: "Attempt " + word(iteration) + " is tested."}, nil
	case coding.Reviewer.Name:
		return coding.ReviewResult{Approved: iteration >= is.Iterations, Summary: "Attempt " + word(iteration) + " is read."}, nil
	case coding.Synthesizer.Name:
		s := coding.Synthesis{Action: coding.Fix, Summary: "Attempt " + word(iteration) + " is judged."}
		if iteration >= is.Iterations {
			s.Action = coding.Approve
		}
		return s, nil
	case pipeline.Merger.Name:
		if err := resolve(c.Dir, is.Files); err != nil {
			return nil, &runtime.Error{Class: runtime.Refused, Reason: "the simulated Merger cannot write: " + err.Error(), Err: err}
		}
		return pipeline.Merged{Success: true, Summary: "Both sides stay."}, nil
	case issueAdvisor:
		return decide(is, round), nil
	case plan.IssueWriter.Name:
		return plan.Spec{IssueName: is.Name, Spec: "Write the file of " + is.Name + ".", Success: true}, nil
	case pipeline.Git.Name:
		return pipeline.PullText{Title: "Simulation", Summary: "A simulated build."}, nil
	case replanner:
		return struct {
			Action    string `json:"action"`
			Rationale string `json:"rationale"`
			Summary   string `json:"summary"`
		}{"continue", "simulated", "Go on with the rest."}, nil
	case retryAdvisor:
		return struct {
			ShouldRetry bool    `json:"should_retry"`
			Diagnosis   string  `json:"diagnosis"`
			Strategy    string  `json:"strategy"`
			Confidence  float64 `json:"confidence"`
		}{true, "simulated", "Try again.", 1}, nil
	}
	return nil, &runtime.Error{Class: runtime.Fatal, Reason: "a simulation has no agent for the role " + c.Role}
}

// fails decides whether the Coder of a step does not get through.
func (a *agents) fails(is Issue, step string) bool {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d\x00%s", a.seed, step) // a hash takes everything
	// Folded once more: the high bits of FNV hardly differ between short texts.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11)/(1<<53) < is.FailProbability
}

// counts reads round and iteration from a step such as
// issue-07/round-1/iter-2/coder; what it does not name is 1.
func counts(step string) (round, iteration int) {
	round, iteration = 1, 1
	for part := range strings.SplitSeq(step, "/") {
		_, _ = fmt.Sscanf(part, "round-%d", &round) // another part leaves it as it is
		_, _ = fmt.Sscanf(part, "iter-%d", &iteration)
	}
	return round, iteration
}

// word is a number that the engine does not take for noise when it compares
// what was said.
func word(n int) string {
	text := ""
	for ; n > 0; n /= 26 {
		text = string(rune('a'+n%26)) + text
	}
	return text
}

// decide is the Issue Advisor's answer after a round.
func decide(is Issue, round int) coding.Decision {
	d := coding.Decision{
		Action: coding.EscalateToReplan, FailureDiagnosis: "simulated", FailureCategory: "logic", Rationale: "simulated", Confidence: 1,
		Summary: "As the plan says.", EscalationReason: "the plan names no further action", DAGImpact: "its dependents wait",
	}
	if round <= len(is.Advisor) {
		d.Action = is.Advisor[round-1]
	}
	switch d.Action {
	case coding.RetryModified:
		d.ModifiedCriteria = []graph.Criterion{{Text: "A part of the file is there"}}
		d.ModificationJustification = "simulated"
	case coding.RetryApproach:
		d.NewApproach, d.ApproachChanges = "Another way.", []string{"all of it"}
	case coding.Split:
		d.SplitRationale = "simulated"
		for _, part := range []string{"one", "two"} {
			sub := Plan{Issues: []Issue{{Name: is.Name + "-" + part}}}.graph()[0]
			sub.ParentName = is.Name
			d.SubIssues = append(d.SubIssues, sub)
		}
	case coding.AcceptWithDebt:
		d.MissingFunctionality = []coding.Shortfall{{Severity: "low", Justification: "simulated"}}
		d.DebtSeverity = "low"
	}
	return d
}

// A place is a file of the synthetic repository and the issue that writes it, by
// key. A project does not grow by a file with every issue, and most of them are
// at work on what others wrote before: see own.
type place struct{ file, holder string }

// places is how many files there are before one is given to another issue.
const places = 128

// own is the file that an issue writes whole, and nobody else before it has landed.
// In a plan of more issues than places it is one whose last holder has landed: its
// words are in the worktree. The directories keep every tree small, as those of a
// real project are.
func (a *agents) own(key string, root *os.Root) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if file, known := a.owns[key]; known {
		return file, nil
	}
	for i := 0; len(a.places) >= places && i < len(a.places); i++ { // the one held longest first
		p := a.places[i]
		text, err := root.ReadFile(p.file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if strings.HasPrefix(string(text), p.holder+"/") {
			a.places = append(slices.Delete(a.places, i, i+1), place{p.file, key})
			a.owns[key] = p.file
			return p.file, nil
		}
	}
	n := len(a.places)
	file := fmt.Sprintf("parts/%02d/%03d.txt", n%16, n)
	a.places = append(a.places, place{file, key})
	a.owns[key] = file
	return file, nil
}

// work does the Coder's work, its own file and a line in each of the others, and
// returns what it wrote.
func (a *agents) work(dir string, is Issue, step string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // nothing is written through it afterwards
	key, _, _ := strings.Cut(step, "/")
	own, err := a.own(key, root)
	if err != nil {
		return nil, err
	}
	if err := root.MkdirAll(path.Dir(own), 0o755); err != nil {
		return nil, err
	}
	if err := root.WriteFile(own, []byte(step+"\n"), 0o644); err != nil {
		return nil, err
	}
	for _, f := range is.Files {
		if err := root.MkdirAll(path.Dir(f), 0o755); err != nil {
			return nil, err
		}
		text, err := root.ReadFile(f)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := root.WriteFile(f, append(text, (step+"\n")...), 0o644); err != nil {
			return nil, err
		}
	}
	return append([]string{own}, is.Files...), nil
}

// resolve does the Merger's work: both sides of every conflict stay.
func resolve(dir string, files []string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written through it afterwards
	for _, f := range files {
		text, err := root.ReadFile(f)
		if err != nil {
			return err
		}
		var kept strings.Builder
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "<<<<<<<") && !strings.HasPrefix(line, "=======") && !strings.HasPrefix(line, ">>>>>>>") {
				kept.WriteString(line)
			}
		}
		// Where git needed no help there is nothing to change.
		if err := root.WriteFile(f, []byte(kept.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
