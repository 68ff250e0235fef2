package pipeline

import (
	"slices"
	"strings"
	"sync"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/ci"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// subagentPrompt is what every subagent is told; its input is an agent.Errand.
var subagentPrompt = agent.Load(prompts, "subagent")

// subagents are the kinds that agents may ask through the agent tool: the roles
// that read, and the lenses of a review.
func subagents() []agent.Subagent {
	look := []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep}
	try := append(slices.Clone(look), runtime.Bash)
	kinds := []agent.Subagent{
		{Type: plan.ProductManager.Name, About: "says what a goal asks for and what its criteria are.", Tools: look},
		{Type: plan.Architect.Name, About: "finds how the parts of the code fit and where a change belongs.", Tools: look},
		{Type: plan.TechLead.Name, About: "judges whether a plan or a design will work.", Tools: look},
		{Type: coding.Coder.Name, About: "explores code, finds how something is done and what would have to change.", Tools: try},
		{Type: coding.QA.Name, About: "finds out by running it whether something works.", Tools: try},
		{Type: coding.Reviewer.Name, About: "reads a change and says what is wrong with it.", Tools: look},
		{Type: Merger.Name, About: "says how two changes to the same files go together.", Tools: look},
		{Type: Verifier.Name, About: "checks one claim against the code and what it does.", Tools: try},
		{Type: ci.Fixer.Name, About: "finds out why a check of continuous integration fails.", Tools: try},
	}
	for i := range kinds {
		kinds[i].Model = kinds[i].Type
	}
	for _, lens := range review.Lenses() {
		kinds = append(kinds, agent.Subagent{Type: lens.Name, About: lens.About, Model: review.LensRole, Tools: try})
	}
	return kinds
}

// delegation is the agent tool of the build's agents.
func (b *build) delegation() *agent.Delegation {
	kinds := subagents()
	for i := range kinds {
		kinds[i].Approval = b.conf.Pipeline.ApproveSubagents
	}
	return &agent.Delegation{
		Kinds: kinds, Prompt: subagentPrompt, MaxConcurrency: b.concurrency(), Emit: b.live.hear, Approve: b.permit,
	}
}

// concurrency is how many slots of a batch may be at work: the server's word and
// the repository's, whichever is less.
func (b *build) concurrency() int {
	return max(1, min(b.conf.Pipeline.MaxConcurrency, b.Defaults.Pipeline.MaxConcurrency))
}

// live is what the batches of a build are at, which no journal tells: a resumed
// build begins them anew.
type live struct {
	told func(batch.Event) // after each change; may be nil

	mu      sync.Mutex
	batches []report.Batch // those with an open slot, in the order in which they began
}

// hear takes an event. One that comes twice changes nothing.
func (l *live) hear(e batch.Event) {
	l.mu.Lock()
	i := slices.IndexFunc(l.batches, func(b report.Batch) bool { return b.Call == e.Call && b.Batch == e.Batch })
	if i < 0 {
		i = len(l.batches)
		l.batches = append(l.batches, report.Batch{Call: e.Call, Batch: e.Batch})
	}
	at := &l.batches[i]
	for len(at.Slots) <= e.Slot {
		at.Slots = append(at.Slots, report.Slot{})
	}
	if s := &at.Slots[e.Slot]; e.Seq > s.Seq {
		*s = report.Slot{Seq: e.Seq, Type: e.Type, State: string(e.State), Error: e.Error}
	}
	if !slices.ContainsFunc(at.Slots, func(s report.Slot) bool { return !batch.State(s.State).Final() }) {
		l.batches = slices.Delete(l.batches, i, i+1)
	}
	l.mu.Unlock()
	if l.told != nil {
		l.told(e)
	}
}

// now returns the batches that are at work.
func (l *live) now() []report.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []report.Batch
	for _, b := range l.batches {
		b.Slots = slices.Clone(b.Slots)
		out = append(out, b)
	}
	return out
}

// isSubagent tells the call of a subagent from its parent's.
func isSubagent(key string) bool { return strings.Contains(key, "/agent-") }
