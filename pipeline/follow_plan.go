package pipeline

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
)

// An ask is one thing that a follow-up is to do: a criterion, and what its coder
// is told beside it.
type ask struct {
	plan.Criterion
	path   string // the file that it is about, if there is one
	beside string
}

// asks are what somebody said, each of which becomes a criterion. Where code does
// the work there are none.
func (f *Follow) asks(text string) (all []ask) {
	add := func(id, what, path, beside string) {
		all = append(all, ask{Criterion: plan.Criterion{ID: id, Text: what, MustHave: true}, path: path, beside: beside})
	}
	switch f.Work {
	case Findings:
		for i, e := range f.Findings {
			add(findingCriterion(i), "A reviewer found: "+e.String()+suggested(e), e.Path, "")
		}
	case Asked:
		add("asked", text, "", "")
	case Feedback:
		if strings.TrimSpace(text) != "" {
			add("review", "A reviewer wrote: "+text, "", "")
		}
		for _, t := range f.Threads {
			add(threadCriterion(t), saidIn(t), t.Path, around(t))
		}
	}
	return all
}

// parts are the asks by the issue that serves them. Each file with findings is an
// issue of its own, so that it has its own commit; what a person said belongs
// together.
func (f *Follow) parts(all []ask) (parts [][]ask) {
	if f.Work != Findings {
		return [][]ask{all}
	}
	at := map[string]int{}
	for _, a := range all {
		i, known := at[a.path]
		if !known {
			i, at[a.path] = len(parts), len(parts)
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], a)
	}
	return parts
}

// plan has a criterion for each thing that somebody said, and issues that serve
// them. Where code does the work there is neither.
func (f *Follow) plan(text string) plan.Result {
	var out plan.Result
	out.PRD = plan.PRD{Title: fmt.Sprintf("Follow up on pull request %d", f.Pull.Number), Size: plan.Trivial}
	out.Architecture = plan.Architecture{Summary: "What is there stays as it is designed."}
	about := fmt.Sprintf("The pull request %q is open. Change what is asked for below, on top of what its branch holds, and nothing else.", f.Pull.Title)
	switch f.Work {
	case FixCI:
		about = "Mend what fails in the checks of the pull request."
	case Conflicts:
		about = "Merge the base into the branch of the pull request."
	}
	all := f.asks(text)
	out.PRD.ValidatedDescription = described(about, all)
	if len(all) == 0 {
		return out
	}
	for _, a := range all {
		out.PRD.AcceptanceCriteria = append(out.PRD.AcceptanceCriteria, a.Criterion)
	}
	parts := f.parts(all)
	for i, part := range parts {
		is := graph.Issue{
			Name: "follow-up", Title: fmt.Sprintf("Follow up on #%d", f.Pull.Number), Description: described(about, part),
			Guidance: graph.Guidance{EstimatedScope: "small", RiskRationale: "It changes what a person has looked at, and a person looks again."},
		}
		if len(parts) > 1 {
			is.Name = fmt.Sprintf("follow-up-%d", i+1)
			is.Title += " in " + cmp.Or(part[0].path, "no file in particular")
		}
		for _, a := range part {
			if a.path != "" {
				is.FilesToModify = append(is.FilesToModify, a.path)
			}
			is.AcceptanceCriteria = append(is.AcceptanceCriteria, graph.Criterion{Text: a.Text, PRDIDs: []string{a.ID}})
		}
		out.Issues = append(out.Issues, is)
	}
	out.Rationale = "People said what is to be done."
	return out
}

func described(about string, all []ask) string {
	text := about
	for _, a := range all {
		text += "\n\n" + a.ID + "\n" + a.Text + a.beside
	}
	return text
}

// findingCriterion names the criterion that a finding asks for, by its place in the
// list.
func findingCriterion(i int) string { return fmt.Sprintf("finding-%d", i+1) }

func suggested(e finding.Entry) string {
	if e.Suggestion == "" {
		return ""
	}
	return "\nSuggested: " + e.Suggestion
}

// threadCriterion names the criterion that a thread asks for.
func threadCriterion(t forge.Thread) string { return fmt.Sprintf("thread-%d", t.ID) }

// What a thread brings into prompts, in bytes.
const (
	maxRemark = 8 << 10
	maxHunk   = 4 << 10
)

// bounded is text that is cut where it is too long, and says so.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "\n[cut here: it is longer]"
}

// saidIn is a thread as text: where, and who said what.
func saidIn(t forge.Thread) string {
	var b strings.Builder
	fmt.Fprintf(&b, "What the reviewer asks for at %s", t.Path)
	if t.Line > 0 {
		fmt.Fprintf(&b, ":%d", t.Line)
	}
	b.WriteString(" is done, or does not hold and the reason is shown:")
	for _, r := range t.Remarks {
		fmt.Fprintf(&b, "\n%s: %s", r.By.Login, bounded(r.Body, maxRemark))
	}
	return b.String()
}

// around is the diff above the place of a thread, the nearest of it.
func around(t forge.Thread) string {
	hunk := t.Hunk
	if hunk == "" {
		return ""
	}
	if len(hunk) > maxHunk {
		hunk = "[…]" + strings.ToValidUTF8(hunk[len(hunk)-maxHunk:], "")
	}
	return "\n\nThe diff above the place:\n" + hunk
}
