// Package ci judges what a repository's CI says of a commit that was pushed.
//
// Judge is a pure function of what was observed: the checks of exactly that
// commit, those of its base, and what re-runs said. Whoever observes waits,
// re-runs and observes again as the verdict says, until it is final. What it
// promises:
//
//   - A run of another commit is never looked at.
//   - Green was seen: every run ended well, every required name is among them,
//     and there was time for all to appear.
//   - A failure is called one of the code only if the base does not have it, and
//     it came again when the run was repeated, or the run cannot be repeated.
//   - Past its deadline nothing waits: the verdict is Unclear at the latest.
//
// Fixer is the agent that mends failures of the code, and Weakens says why a fix
// must not be taken.
package ci

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// An Observation is what is known at one instant. Logs and Base are asked for
// by Judge's caller when there are failures; without them less is known, and
// the verdict says less.
type Observation struct {
	Now    time.Time
	SHA    string    // the commit that was pushed
	Pushed time.Time // when
	Head   forge.CI  // of SHA; of another commit it says nothing
	Base   forge.CI  // of the commit that the work began on; zero when not read
	Reruns []Rerun
	Logs   map[int64]string // by the id of a failed run: what CILog gave; untrusted
}

// A Rerun is a run that ended badly and was asked for again.
type Rerun struct {
	Run     forge.CIRun `json:"run"` // as it had failed
	At      time.Time   `json:"at"`
	Refused string      `json:"refused,omitempty"` // why it cannot be re-run
}

// Options bound the waiting.
type Options struct {
	Wait   time.Duration // what the checks of a commit may take, from the push or the last re-run on
	Poll   time.Duration // between two looks
	Grace  time.Duration // until then no check is missing yet; 0 means DefaultGrace
	Answer time.Duration // until then a re-run has begun, or it cannot be re-run; 0 means DefaultAnswer
}

// The bounds that no knob sets.
const (
	DefaultGrace  = time.Minute
	DefaultAnswer = 5 * time.Minute
)

// State is what a verdict says.
type State string

// The states. Waiting and Repeat are not final.
const (
	None    State = "none"    // there is no CI
	Waiting State = "waiting" // look again at Verdict.Again
	Repeat  State = "repeat"  // re-run Verdict.Repeat, then look again
	Green   State = "green"
	Red     State = "red"     // Verdict.Failures says why
	Unclear State = "unclear" // the time is up; Verdict.Cause says what was missing
)

// A Verdict is what an observation amounts to.
type Verdict struct {
	State    State         `json:"state"`
	Again    time.Time     `json:"again,omitzero"`     // of Waiting
	Repeat   []forge.CIRun `json:"repeat,omitempty"`   // of Repeat: the runs whose failure needs evidence
	Failures []Failure     `json:"failures,omitempty"` // of Red, all; of Green, the flaky ones
	Cause    string        `json:"cause,omitempty"`    // one sentence: why not green
}

// Of lists the failures of a class.
func (v Verdict) Of(c Class) (out []Failure) {
	for _, f := range v.Failures {
		if f.Class == c {
			out = append(out, f)
		}
	}
	return out
}

// A Failure is a run that ended badly, and what kind of failure that is.
type Failure struct {
	Run      forge.CIRun `json:"run"`
	Class    Class       `json:"class"`
	Evidence string      `json:"evidence"` // one sentence: what the class rests on
}

// Class is the kind of a failure.
type Class string

// The classes. Only Code is the Fixer's.
const (
	Code           Class = "code"
	Flaky          Class = "flaky"          // passed on the same commit when it was re-run
	Infrastructure Class = "infrastructure" // the machine, the network, or a person who did not answer
	PreExisting    Class = "pre_existing"   // fails on the base too
)

// Judge says what an observation amounts to.
func Judge(in Observation, o Options) Verdict {
	o.Grace, o.Answer = cmp.Or(o.Grace, DefaultGrace), cmp.Or(o.Answer, DefaultAnswer)
	j := judge{in: in, o: o, seen: in.Head.SHA == in.SHA}
	if j.seen {
		for _, r := range in.Head.Runs {
			if r.SHA == in.SHA {
				j.runs = append(j.runs, r)
			}
		}
	}
	return j.verdict()
}

// A judge is one call of Judge.
type judge struct {
	in   Observation
	o    Options
	seen bool          // the observation is of the commit that was pushed
	runs []forge.CIRun // of that commit
}

func (j judge) verdict() Verdict {
	switch {
	case !j.seen:
		return j.wait("the checks of " + j.in.SHA + " were not read")
	case len(j.runs) == 0 && len(j.in.Head.Required) == 0:
		return j.nothing()
	}
	if pending := j.pending(); len(pending) > 0 {
		return j.wait("not finished: " + strings.Join(pending, ", "))
	}
	if j.in.Now.Before(j.grace()) { // what has reported may not be all
		return Verdict{State: Waiting, Again: j.next(j.grace()), Cause: "further checks may still appear"}
	}
	failures, repeat := j.failures()
	switch missing := j.missing(); {
	case len(repeat) > 0:
		return Verdict{State: Repeat, Repeat: repeat, Cause: "failures that were seen once: " + names(repeat)}
	case slices.ContainsFunc(failures, func(f Failure) bool { return f.Class != Flaky }):
		return Verdict{State: Red, Failures: failures, Cause: "failed: " + failed(failures)}
	case len(missing) > 0:
		return j.wait("required, and not reported: " + strings.Join(missing, ", "))
	}
	return Verdict{State: Green, Failures: failures}
}

// nothing is the verdict while no check has been seen and none is required.
func (j judge) nothing() Verdict {
	switch {
	case !j.in.Head.Configured:
		return Verdict{State: None}
	case j.in.Now.Before(j.grace()):
		return Verdict{State: Waiting, Again: j.next(j.grace()), Cause: "no check has appeared yet"}
	}
	return Verdict{State: None, Cause: fmt.Sprintf("CI is set up, and no check appeared within %s of the push", j.o.Grace)}
}

// pending names the runs that have not ended, and those whose re-run has not
// begun and still may.
func (j judge) pending() (out []string) {
	for _, r := range j.runs {
		again := j.rerun(r)
		switch {
		case r.Status != "completed":
			out = append(out, r.Name)
		case again != nil && again.Refused == "" && same(r, again.Run) && j.in.Now.Before(again.At.Add(j.o.Answer)):
			out = append(out, r.Name+" (asked for again)")
		}
	}
	return out
}

// failures classifies what ended badly. Those that need evidence first are in
// repeat.
func (j judge) failures() (out []Failure, repeat []forge.CIRun) {
	for _, r := range j.runs {
		again := j.rerun(r)
		if passed(r) {
			if again != nil && !same(r, again.Run) {
				out = append(out, Failure{Run: again.Run, Class: Flaky, Evidence: "it passed on the same commit when it was run again"})
			}
			continue
		}
		broken, sign := j.broken(r)
		switch {
		case j.preExisting(r):
			out = append(out, Failure{Run: r, Class: PreExisting, Evidence: "it fails on the base too"})
		case r.Conclusion == "action_required": // a re-run would wait for the same person
			out = append(out, Failure{Run: r, Class: Infrastructure, Evidence: sign})
		case again == nil:
			repeat = append(repeat, r)
		case broken:
			out = append(out, Failure{Run: r, Class: Infrastructure, Evidence: sign + "; " + j.evidence(r, *again)})
		default:
			out = append(out, Failure{Run: r, Class: Code, Evidence: j.evidence(r, *again)})
		}
	}
	return out, repeat
}

func (j judge) evidence(r forge.CIRun, again Rerun) string {
	switch {
	case again.Refused != "":
		return "it failed once, and " + again.Refused
	case same(r, again.Run):
		return "it failed once, and nobody answered when it was asked for again"
	}
	return "it failed again when it was re-run"
}

// preExisting reports whether the base's commit has the run, and only failing.
func (j judge) preExisting(r forge.CIRun) bool {
	found := false
	for _, b := range j.in.Base.Runs {
		if b.Name != r.Name || b.App != r.App || b.SHA != j.in.Base.SHA || b.SHA == j.in.SHA {
			continue
		}
		if b.Status != "completed" || b.Conclusion != "failure" {
			return false
		}
		found = true
	}
	return found
}

// missing names the required checks that no run has.
func (j judge) missing() (out []string) {
	for _, name := range j.in.Head.Required {
		if !slices.ContainsFunc(j.runs, func(r forge.CIRun) bool { return r.Name == name }) {
			out = append(out, name)
		}
	}
	return out
}

// rerun is what is known of the repetition of a run, nil when it was not asked
// for. The newest counts.
func (j judge) rerun(r forge.CIRun) *Rerun {
	for i := range slices.Backward(j.in.Reruns) {
		if a := &j.in.Reruns[i]; a.Run.SHA == j.in.SHA && a.Run.Name == r.Name && a.Run.App == r.App && a.Run.Suite == r.Suite {
			return a
		}
	}
	return nil
}

// same reports whether a run is the attempt that it was, and not a newer one.
func same(now, before forge.CIRun) bool {
	return now.ID == before.ID && now.Status == before.Status && now.Conclusion == before.Conclusion && now.Completed.Equal(before.Completed)
}

// passed reports whether a run ended well; neutral and skipped satisfy GitHub
// too. A conclusion that nobody has heard of is not among them.
func passed(r forge.CIRun) bool {
	return r.Status == "completed" && slices.Contains([]string{"success", "neutral", "skipped"}, r.Conclusion)
}

func (j judge) grace() time.Time { return j.in.Pushed.Add(j.o.Grace) }

// deadline is when nothing is waited for any more. A re-run gets its time anew,
// and each run is re-run once.
func (j judge) deadline() time.Time {
	from := j.in.Pushed
	for _, r := range j.in.Reruns {
		if r.Run.SHA == j.in.SHA && r.Refused == "" && r.At.After(from) {
			from = r.At
		}
	}
	return from.Add(j.o.Wait)
}

func (j judge) wait(cause string) Verdict {
	if !j.in.Now.Before(j.deadline()) {
		return Verdict{State: Unclear, Cause: fmt.Sprintf("the time for checks is up (%s); %s", j.o.Wait, cause)}
	}
	return Verdict{State: Waiting, Again: j.next(j.deadline()), Cause: cause}
}

// next is the next look, at the latest at end.
func (j judge) next(end time.Time) time.Time {
	if at := j.in.Now.Add(j.o.Poll); at.Before(end) {
		return at
	}
	return end
}

func names(runs []forge.CIRun) string {
	var all []string
	for _, r := range runs {
		all = append(all, r.Name)
	}
	return strings.Join(all, ", ")
}

func failed(failures []Failure) string {
	var all []string
	for _, f := range failures {
		if f.Class != Flaky {
			all = append(all, fmt.Sprintf("%s (%s)", f.Run.Name, f.Class))
		}
	}
	return strings.Join(all, ", ")
}
