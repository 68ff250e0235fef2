package debt

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestItemsComeWorstFirst(t *testing.T) {
	var l Ledger
	l.Record(
		Item{Type: FailedWork, Severity: Low, IssueName: "a"},
		Item{Type: FailedWork, Severity: High, IssueName: "b"},
		Item{Type: FailedWork, Severity: Medium, IssueName: "c"},
	)
	l.Record(Item{Type: SkippedWork, Severity: High, IssueName: "d"})
	var got []string
	for _, it := range l.Items() {
		got = append(got, it.IssueName)
	}
	if want := []string{"b", "d", "c", "a"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestResumedBuildRecordsNothingTwice(t *testing.T) {
	item := Item{Type: UnmergedWork, Severity: High, IssueName: "a", Justification: "conflict in main.go"}
	var l Ledger
	l.Record(item, item)
	l.Record(item)
	other := item
	other.Justification = "conflict in go.mod"
	l.Record(other)
	if got := l.Items(); len(got) != 2 || got[0] != item || got[1] != other {
		t.Errorf("got %+v", got)
	}
}

func TestCallersCannotChangeTheLedger(t *testing.T) {
	var l Ledger
	if l.Items() != nil {
		t.Error("an empty ledger has items")
	}
	l.Record(Item{Type: WaivedReview, Severity: High})
	l.Items()[0].Severity = Low
	if l.Items()[0].Severity != High {
		t.Error("an item was changed through the copy")
	}
}

// Debt only grows: whatever is recorded stays, once.
func TestLedgerOnlyGrows(t *testing.T) {
	item := rapid.Custom(func(t *rapid.T) Item {
		return Item{
			Type:      rapid.SampledFrom([]Type{FailedWork, SkippedWork, ReviewFinding}).Draw(t, "type"),
			Severity:  rapid.SampledFrom([]Severity{High, Medium, Low, ""}).Draw(t, "severity"),
			IssueName: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "issue"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		distinct := map[Item]bool{}
		for _, batch := range rapid.SliceOf(rapid.SliceOf(item)).Draw(t, "batches") {
			before := l.Items()
			l.Record(batch...)
			for _, it := range batch {
				distinct[it] = true
			}
			after := l.Items()
			for _, it := range before {
				if !slices.Contains(after, it) {
					t.Fatalf("%+v was lost", it)
				}
			}
			if len(after) != len(distinct) {
				t.Fatalf("%d items of %d", len(after), len(distinct))
			}
			if !slices.IsSortedFunc(after, func(a, b Item) int { return a.Severity.rank() - b.Severity.rank() }) {
				t.Fatalf("not worst first: %+v", after)
			}
		}
	})
}

func TestAResetLedgerIsANewOne(t *testing.T) {
	var l Ledger
	item := Item{Type: WaivedReview, Severity: Low, Justification: "once"}
	l.Record(item, item)
	if l.Len() != 1 {
		t.Errorf("%d items", l.Len())
	}
	l.Reset()
	if l.Items() != nil || l.Len() != 0 {
		t.Errorf("after a reset: %#v", l.Items())
	}
	l.Record(item)
	if l.Len() != 1 {
		t.Error("what was known before the reset is not recorded again")
	}
}
