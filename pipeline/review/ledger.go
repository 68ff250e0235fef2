package review

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/slipway-dev/slipway/pipeline/finding"
)

// A candidate is an entry that waits for a verdict.
type candidate struct {
	finding.Entry
	lenses []string        // that raised it in this review
	quoted bool            // its quote is in the repository
	was    finding.Verdict // what came of it in an earlier review; empty when this one raised it
	gone   bool            // the code that an earlier review quoted is no longer there
}

// A ledger is all that was claimed, in this review and before.
type ledger struct {
	closed []finding.Entry // of an earlier review, and not to be judged again
	// active are to be judged: first the carried ones, then the new ones by slot
	// and place.
	active []*candidate
	judged int // of the active: verifiers were given these
	// stated is what code found without asking anybody; see facts.
	stated []finding.Entry
}

// entries are all entries, those of the earlier review first.
func (l *ledger) entries() []finding.Entry {
	out := slices.Clone(l.closed)
	for _, c := range l.active {
		out = append(out, c.Entry)
	}
	return append(out, l.stated...)
}

// unjudged are the active entries that no verifier was given yet.
func (l *ledger) unjudged() []*candidate {
	from := l.judged
	l.judged = len(l.active)
	return l.active[from:]
}

// recall takes in what the earlier review left.
func (r *run) recall(ctx context.Context, l *ledger) error {
	if r.target.Earlier == nil {
		return nil
	}
	for _, e := range r.target.Earlier.Findings {
		r.target.heed(&e)
		switch {
		case isFact(e):
			l.stated = append(l.stated, e)
		case e.State == finding.Dismissed:
			closed, err := r.dismissed(ctx, e)
			if err != nil {
				return err
			}
			l.closed = append(l.closed, closed)
		case !e.State.Live() || e.Verdict == finding.Rejected:
			l.closed = append(l.closed, e)
		default:
			c, err := r.carry(ctx, e)
			if err != nil {
				return err
			}
			l.active = append(l.active, c)
		}
	}
	return nil
}

// heed takes in what people did with a finding since the last review.
func (t Target) heed(e *finding.Entry) {
	at := slices.IndexFunc(t.Dismissed, func(d Dismissal) bool { return d.ID == e.ID })
	switch {
	case e.State.Live() && at >= 0:
		e.State, e.DismissedBy = finding.Dismissed, t.Dismissed[at].By
	case e.State == finding.Dismissed && slices.Contains(t.Reopened, e.ID):
		e.State, e.DismissedBy = finding.Open, ""
	}
}

// dismissed looks whether the code that a person judged is what it was.
func (r *run) dismissed(ctx context.Context, e finding.Entry) (finding.Entry, error) {
	moved := e
	quoted, err := r.place(ctx, &moved)
	switch {
	case err != nil:
		return e, err
	case quoted && moved.Side == e.Side:
		return moved, nil
	case e.Quote != "" || e.Path == "":
		e.State = finding.Superseded
		return e, nil
	}
	before, err := r.lines(ctx, r.target.Earlier.Head, r.known(e.Path))
	if err != nil {
		return e, err
	}
	after, err := r.lines(ctx, r.target.Head, r.known(e.Path))
	if err == nil && !slices.Equal(before, after) {
		e.State = finding.Superseded
	}
	return e, err
}

// gather adds what slots claim. Claims that are one fault are one candidate; one
// that a person dismissed is none.
func (r *run) gather(ctx context.Context, l *ledger, slots []slot[Subject, Remarks], remarks []Remarks) error {
	known := len(l.active)
	for i, s := range slots {
		found, err := r.placed(ctx, s.lens, remarks[i])
		if err != nil {
			return err
		}
		for _, c := range found {
			if slices.ContainsFunc(l.closed, func(o finding.Entry) bool { return o.State == finding.Dismissed && same(o, c.Entry) }) {
				continue
			}
			if at := slices.IndexFunc(l.active, func(o *candidate) bool { return same(o.Entry, c.Entry) }); at >= 0 {
				l.active[at].agree(c)
			} else {
				l.active = append(l.active, c)
			}
		}
	}
	return r.name(ctx, l, known)
}

// carry takes a finding of the earlier review to where its code is now.
func (r *run) carry(ctx context.Context, e finding.Entry) (*candidate, error) {
	c := &candidate{Entry: e, was: e.Verdict}
	c.State = finding.Open
	quoted, err := r.place(ctx, &c.Entry)
	if err != nil {
		return nil, err
	}
	if c.quoted = quoted && c.Side == e.Side; c.quoted {
		return c, nil
	}
	c.gone = e.Side == finding.NewSide && e.Quote != ""
	c.Side, c.StartLine, c.EndLine = e.Side, e.StartLine, e.EndLine // where it was is all that is known
	return c, nil
}

// placed are the remarks of one slot by place.
func (r *run) placed(ctx context.Context, lens string, said Remarks) ([]*candidate, error) {
	var found []*candidate
	for _, m := range said.Findings {
		c := &candidate{lenses: []string{lens}, Entry: finding.Entry{
			Finding: m.Finding, Lens: lens, EndLine: m.EndLine, Side: m.Side, Quote: m.Quote,
			FailureScenario: m.FailureScenario, Replacement: m.Replacement, Agreement: 1, State: finding.New,
		}}
		var err error
		if c.quoted, err = r.place(ctx, &c.Entry); err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	slices.SortStableFunc(found, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.StartLine, b.StartLine), cmp.Compare(a.EndLine, b.EndLine), cmp.Compare(a.Title, b.Title))
	})
	return found, nil
}

// agree takes in another claim of the same fault: the worse severity holds, and
// a quote that is there replaces one that is not.
func (c *candidate) agree(other *candidate) {
	if !slices.Contains(c.lenses, other.Lens) {
		c.lenses = append(c.lenses, other.Lens)
		c.Agreement = max(c.Agreement, len(c.lenses))
	}
	if !c.Severity.AtLeast(other.Severity) {
		c.Severity = other.Severity
	}
	if other.quoted && !c.quoted {
		c.quoted, c.Quote, c.Outside, c.Anchor, c.Replacement = true, other.Quote, other.Outside, other.Anchor, other.Replacement
		c.Side, c.StartLine, c.EndLine = other.Side, other.StartLine, other.EndLine
	}
}

// alike is the share of words, of the shorter claim, from which on two claims at
// the same place are one fault.
const alike = 0.6

// same reports that two entries are one fault: the same file, lines that
// overlap, and claims that say the same in other words.
func same(a, b finding.Entry) bool {
	if a.Path != b.Path || a.Side != b.Side || a.StartLine > max(b.StartLine, b.EndLine) || b.StartLine > max(a.StartLine, a.EndLine) {
		return false
	}
	mine, theirs := finding.Words(a.Title+" "+a.Claim), finding.Words(b.Title+" "+b.Claim)
	common := 0
	for _, w := range mine {
		if _, ok := slices.BinarySearch(theirs, w); ok {
			common++
		}
	}
	return common > 0 && float64(common) >= alike*float64(min(len(mine), len(theirs)))
}

// name gives each new candidate its fingerprint. What is raised again after it
// was rejected or fixed takes the place and the number of its old entry.
func (r *run) name(ctx context.Context, l *ledger, carried int) error {
	taken := map[string]bool{}
	for _, c := range l.active[:carried] {
		taken[c.ID] = true
	}
	for _, e := range l.closed {
		taken[e.ID] = e.State == finding.Superseded || e.State == finding.Dismissed
	}
	for _, c := range l.active[carried:] {
		text, err := r.lines(ctx, r.commit(c.Side), c.Path)
		if err != nil {
			return err
		}
		id := finding.Fingerprint(c.Path, symbol(text, c.StartLine), c.Claim)
		c.ID = id
		for n := 2; taken[c.ID]; n++ {
			c.ID = fmt.Sprintf("%s-%d", id, n)
		}
		taken[c.ID] = true
		if old := slices.IndexFunc(l.closed, func(e finding.Entry) bool { return e.ID == c.ID }); old >= 0 {
			c.Number = l.closed[old].Number
			l.closed = slices.Delete(l.closed, old, old+1)
		}
	}
	return nil
}
