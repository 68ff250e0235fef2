package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

// A Contender is one build of a comparison: the same ticket on one target.
type Contender struct {
	Build      string        `json:"build"`
	Target     string        `json:"target"`
	State      State         `json:"state"`
	Success    bool          `json:"success"`
	Chosen     bool          `json:"chosen,omitempty"`
	Passed     int           `json:"criteria_passed"` // of Criteria
	Criteria   int           `json:"criteria"`
	Findings   int           `json:"findings"` // open ones, which are debt too
	Debt       int           `json:"debt"`
	CostMicros int64         `json:"cost_micros"`
	Elapsed    time.Duration `json:"elapsed_ns"`
	Progress   int           `json:"progress"` // per cent
	Cause      string        `json:"cause,omitempty"`
	Held
}

// Held is what a contender made, which its ref keeps. It is all zero where
// nothing landed.
type Held struct {
	Commit  string `json:"commit,omitempty"`
	Ref     string `json:"ref,omitempty"`
	Shared  bool   `json:"shared,omitempty"` // the ref is on the forge too
	Files   int    `json:"files"`
	Added   int    `json:"added"` // lines
	Deleted int    `json:"deleted"`
}

// NewContender is a build in the line of a comparison.
func NewContender(target string, b Build) Contender {
	c := Contender{
		Build: b.ID, Target: target, State: b.State, Success: b.Success, Debt: len(b.Debt),
		CostMicros: b.CostMicros, Elapsed: b.Elapsed, Progress: progress(b), Cause: b.Cause,
	}
	for _, it := range b.Debt {
		if it.Type == debt.ReviewFinding {
			c.Findings++
		}
	}
	if v := b.Verification; v != nil {
		c.Criteria = len(v.Criteria)
		for _, one := range v.Criteria {
			if one.Passed && one.Verified {
				c.Passed++
			}
		}
	}
	if b.Held != nil {
		c.Held = *b.Held
	}
	return c
}

// Choosable reports whether there is something to publish.
func (c Contender) Choosable() bool { return c.Commit != "" }

// minCommit is how many digits of a commit name it.
const minCommit = 7

// Chosen is the contender whose commit the hash begins. Where there is none, or
// more than one, the refusal says which there are.
func Chosen(all []Contender, hash string) (c Contender, refusal string) {
	hash = strings.ToLower(strings.TrimSpace(hash))
	var there []string
	var found []Contender
	for _, one := range all {
		if !one.Choosable() {
			continue
		}
		there = append(there, fmt.Sprintf("%s for %s", shortHash(one.Commit), one.Target))
		if len(hash) >= minCommit && strings.HasPrefix(one.Commit, hash) {
			found = append(found, one)
		}
	}
	may := "it is " + strings.Join(there, ", or ")
	switch {
	case hash == "":
		return c, "an approval names the commit of the result that is chosen: " + may
	case len(found) == 0:
		return c, fmt.Sprintf("no result begins with %s: %s", shortHash(hash), may)
	}
	for _, one := range found[1:] {
		if one.Commit != found[0].Commit { // two that made the same are one
			return c, fmt.Sprintf("more than one result begins with %s: %s", shortHash(hash), may)
		}
	}
	return found[0], ""
}

// ComparePage is the comment that shows what the targets of a comparison made,
// and how to choose one.
func ComparePage(b Build) string {
	b.State = WaitingApproval // also while the gate is being opened
	p := page{{text: "### " + b.State.mark() + " Slipway: " + heading(b, 200) + ", built on " + count(len(b.Contenders), "target")}}
	p = append(p, waiting(b)...)
	return append(p, compared(b), contenderNotes(b), section{text: footer(b)}).limited(bodyLimit, runes)
}

// compared is the table of a comparison.
func compared(b Build) section {
	var rows [][]string
	for _, c := range b.Contenders {
		name := code(c.Target, 120)
		if c.Chosen {
			name = "**" + name + "**, chosen"
		}
		made := ""
		if c.Choosable() {
			made = heldLink(b, c.Held)
		}
		rows = append(rows, []string{
			name, contenderState(c), ratio(c), strconv.Itoa(c.Findings), strconv.Itoa(c.Debt), size(c.Held),
			dollars(c.CostMicros), lasted(c.Elapsed), made,
		})
	}
	s := table("", "target", []string{"Target", "State", "Criteria passed", "Findings", "Debt", "Diff", "Cost", "Time", "Commit"}, rows)
	s.last = true
	return s
}

func contenderState(c Contender) string {
	word := strings.TrimSpace(c.State.mark() + " " + strings.ToLower(headline(Build{State: c.State, Success: c.Success})))
	if i := strings.Index(word, ":"); i >= 0 {
		word = word[:i]
	}
	if c.State == Running {
		word += " (" + strconv.Itoa(c.Progress) + "%)"
	}
	return word
}

// ratio is how many criteria passed, where anybody judged them.
func ratio(c Contender) string {
	if c.Criteria == 0 {
		return "–"
	}
	return strconv.Itoa(c.Passed) + " of " + strconv.Itoa(c.Criteria)
}

func size(h Held) string {
	if h.Commit == "" {
		return "–"
	}
	return fmt.Sprintf("+%d −%d in %s", h.Added, h.Deleted, count(h.Files, "file"))
}

// heldLink is a contender's commit: what it changed, where the forge can show it.
func heldLink(b Build, h Held) string {
	if web := b.web(); web != "" && h.Shared && b.BaseSHA != "" {
		return link(commit(h.Commit), web+"/compare/"+b.BaseSHA+"..."+h.Commit)
	}
	return commit(h.Commit)
}

// contenderNotes say why targets ended badly, and where what they made is kept.
func contenderNotes(b Build) section {
	s := section{what: "note"}
	for _, c := range b.Contenders {
		var parts []string
		if c.Cause != "" {
			parts = append(parts, para(c.Cause, 300))
		}
		if c.Ref != "" && !c.Chosen {
			parts = append(parts, "kept at "+code(c.Ref, 120))
		}
		if len(parts) > 0 {
			s.rows = append(s.rows, "- "+code(c.Target, 120)+": "+strings.Join(parts, "; "))
		}
	}
	return s
}

// unchosen reports whether the build is a comparison of which nothing was chosen.
func (b Build) unchosen() bool {
	return len(b.Contenders) > 0 && !slices.ContainsFunc(b.Contenders, func(c Contender) bool { return c.Chosen })
}

// comparison is what a page about the whole says of its targets.
func comparison(b Build) page {
	if len(b.Contenders) == 0 {
		return nil
	}
	return page{compared(b), contenderNotes(b)}
}
