// Package debt is the account of every compromise of a build. Whatever was
// waived, dropped, unmerged or unverified is an Item in the one Ledger of the
// build, and every printed surface shows the same items.
package debt

import (
	"fmt"
	"slices"
)

// Type says what kind of compromise an item is.
type Type string

// The types of debt.
const (
	DroppedCriterion   Type = "dropped_acceptance_criterion"
	MissingFeature     Type = "missing_functionality"
	UnmetCriterion     Type = "unmet_acceptance_criterion"
	WaivedReview       Type = "waived_review"
	UnmergedWork       Type = "unmerged_work"
	FailedWork         Type = "failed_work"
	SkippedWork        Type = "skipped_work"
	UnverifiedCriteria Type = "unverified_criterion"
	ReviewFinding      Type = "review_finding"
)

// Severity ranks an item.
type Severity string

// The severities, worst first.
const (
	High   Severity = "high"
	Medium Severity = "medium"
	Low    Severity = "low"
)

// Check refuses what is no severity.
func (s Severity) Check() error {
	switch s {
	case High, Medium, Low:
		return nil
	}
	return fmt.Errorf("severity %q: use high, medium or low", s)
}

// An Item is one recorded compromise.
type Item struct {
	Type          Type     `json:"type"`
	Severity      Severity `json:"severity"`
	IssueName     string   `json:"issue_name,omitempty"`
	Criterion     string   `json:"criterion,omitempty"`
	Justification string   `json:"justification"`
	File          string   `json:"file,omitempty"`
	FollowUp      string   `json:"follow_up,omitempty"`
}

// Ledger collects the items of one build in the order they were recorded. It
// only grows; recording an equal item again changes nothing, so that a resumed
// build may record what it recorded before.
type Ledger struct {
	items []Item
	known map[Item]bool
}

// Record adds items that are not in the ledger yet.
func (l *Ledger) Record(items ...Item) {
	for _, it := range items {
		if l.known == nil {
			l.known = map[Item]bool{}
		}
		before := len(l.known)
		l.known[it] = true // asked and told at once: an item is long to hash
		if len(l.known) > before {
			l.items = append(l.items, it)
		}
	}
}

// Reset empties the ledger and keeps its room, for one that is made anew at
// every landing.
func (l *Ledger) Reset() {
	clear(l.known)
	l.items = l.items[:0]
}

// Len is how many items there are.
func (l *Ledger) Len() int { return len(l.items) }

// Items returns a copy, worst severity first, otherwise as recorded; nil when
// there are none, whatever there was before a Reset.
func (l *Ledger) Items() []Item {
	out := append([]Item(nil), l.items...)
	slices.SortStableFunc(out, func(a, b Item) int { return a.Severity.rank() - b.Severity.rank() })
	return out
}

func (s Severity) rank() int {
	switch s {
	case High:
		return 0
	case Medium:
		return 1
	default:
		return 2
	}
}
