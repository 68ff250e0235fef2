package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// documentVersion is the version of the state document's form.
const documentVersion = 1

// issueDocument is an issue in the state document.
type issueDocument struct {
	Spec         graph.Issue    `json:"spec"`
	Status       report.Outcome `json:"status"`
	Branch       string         `json:"branch,omitempty"` // the ref that holds its last commit
	Base         string         `json:"base,omitempty"`
	Commit       string         `json:"commit,omitempty"`
	Merge        string         `json:"merge,omitempty"`
	Detail       string         `json:"detail,omitempty"`
	DebtNotes    []graph.Note   `json:"debt_notes,omitempty"`    // what it tells those downstream
	FailureNotes []graph.Note   `json:"failure_notes,omitempty"` // likewise, and what replans told it
}

// gitDocument is where the build's commits are.
type gitDocument struct {
	IntegrationBranch string `json:"integration_branch"`
	Head              string `json:"head"`
	OriginalBranch    string `json:"original_branch"`
	InitialCommit     string `json:"initial_commit"`
}

// document is the state of the build for readers, as JSON. It is written at
// every landing of a build that may have a thousand issues, so what an issue
// says is kept until the issue changes.
func (f *Fold) document() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var d documentWriter
	d.text.Grow(f.documentSize + 4<<10) // it grows by little from one to the next
	d.text.WriteByte('{')
	d.field("v", documentVersion)
	d.field("build", f.begun)
	d.field("segment", f.segment)
	if f.planText == nil && f.plan != nil {
		p := *f.plan
		p.Issues, p.Levels = nil, nil // they are below, as edits left them
		f.planText, d.err = json.Marshal(p)
	}
	d.raw("plan", f.planText)
	d.issues(f.order, f.failureNote)
	if f.graph != nil {
		d.field("levels", f.graph.Levels())
	}
	by := map[string][]string{}
	var advice []coding.Advice
	for _, s := range f.order {
		list := "pending"
		switch o := s.outcome(); {
		case s.merge != "":
			list = "completed"
		case s.failed():
			list = "failed"
		case o == report.Skipped:
			list = "skipped"
		case o == report.FailedNeedsSplit:
			list = "split"
		case o == report.InProgress || o == report.Landing:
			list = "in_flight"
		}
		by[list] = append(by[list], s.issue.Name)
		if s.kept != nil {
			advice = append(advice, s.kept.Result.Advice...)
		}
	}
	for _, list := range []string{"pending", "in_flight", "completed", "failed", "split", "skipped"} {
		d.field(list, by[list])
	}
	d.field("replan_count", f.asked)
	d.field("replan_history", f.history)
	d.field("adaptation_history", advice)
	d.field("merge_results", f.came[max(0, len(f.came)-1):]) // the newest; the journal has all
	if f.pin != nil {
		d.field("git", gitDocument{
			IntegrationBranch: integrationRef(f.begun.Build), Head: f.head, OriginalBranch: f.pin.Base, InitialCommit: f.pin.BaseSHA,
		})
	}
	d.field("accumulated_debt", f.ledger().Items())
	d.field("memory", f.memory)
	d.field("verification", f.verified)
	d.text.WriteString("}\n")
	f.documentSize = d.text.Len()
	if d.err != nil {
		return nil, fmt.Errorf("write the state document: %w", d.err)
	}
	return d.text.Bytes(), nil
}

// documentWriter puts a JSON object together from parts that are JSON already.
type documentWriter struct {
	text bytes.Buffer
	err  error
}

func (d *documentWriter) name(of string) {
	if d.text.Len() > 1 {
		d.text.WriteString(",\n")
	}
	fmt.Fprintf(&d.text, "%q: ", of)
}

func (d *documentWriter) raw(name string, value json.RawMessage) {
	if value != nil {
		d.name(name)
		d.text.Write(value)
	}
}

func (d *documentWriter) field(name string, value any) {
	if d.err != nil {
		return
	}
	var text json.RawMessage
	if text, d.err = json.Marshal(value); d.err == nil {
		d.raw(name, text)
	}
}

func (d *documentWriter) issues(all []*issueState, failed func(*issueState) graph.Note) {
	d.name("issues")
	d.text.WriteByte('[')
	for i, s := range all {
		if s.document == nil && d.err == nil {
			s.document, d.err = json.Marshal(s.describe(failed))
		}
		if i > 0 {
			d.text.WriteByte(',')
		}
		d.text.Write(s.document)
	}
	d.text.WriteByte(']')
}

func (s *issueState) describe(failed func(*issueState) graph.Note) issueDocument {
	d := issueDocument{Spec: s.issue, Status: s.outcome(), Base: s.base, Merge: s.merge, Detail: s.why(), FailureNotes: s.told}
	if s.kept != nil {
		d.Branch, d.Commit = s.kept.Ref, s.kept.Result.Commit
	}
	switch {
	case d.Status == report.CompletedWithDebt:
		d.DebtNotes = []graph.Note{s.debtNote()}
	case s.failed():
		d.FailureNotes = append(d.FailureNotes, failed(s))
	}
	return d
}
