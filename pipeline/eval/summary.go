package eval

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/results"
)

// A Header says what a bundle is of; it is in its summary from the beginning.
type Header struct {
	Experiment  string    `json:"experiment"`
	Timestamp   string    `json:"timestamp"`
	Target      Target    `json:"target"`
	Variant     Variant   `json:"variant"`
	EvalPath    string    `json:"eval_path"`
	SuiteDigest string    `json:"suite_digest"`
	Cases       []string  `json:"cases"` // ids of those that are wanted
	Repeat      int       `json:"repeat"`
	Threshold   Threshold `json:"threshold"`
	Started     time.Time `json:"started"`
	Lost        int64     `json:"interrupted_cost_micros,omitempty"` // of runs that were interrupted and are not kept
}

// A Summary adds up the runs of a bundle: of each case the newest ones that
// measured something, as many as the suite repeats it.
type Summary struct {
	Header
	Bundle     string               `json:"bundle,omitempty"` // relative to the root of results; not in the file, which may be moved
	Complete   bool                 `json:"complete"`
	Torn       bool                 `json:"torn,omitempty"` // the last line of the index was not whole, and was skipped
	Counts     Counts               `json:"counts"`
	Overall    Score                `json:"overall"`
	ByLanguage map[string]Score     `json:"by_language"`
	ByLens     map[string]LensScore `json:"by_lens"`
	ByKind     map[string]KindScore `json:"by_kind"`
	Below      []string             `json:"below_threshold"` // what did not reach it
	CostMicros int64                `json:"cost_micros"`     // of all runs, also those that do not count
	AgentCalls int                  `json:"agent_calls"`
	Methods    map[string]string    `json:"methods"`
}

// Counts count runs.
type Counts struct {
	Cases   int `json:"cases"`
	Runs    int `json:"runs"` // that count
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Errors  int `json:"infra_errors"` // that are kept and count for nothing
	Missing int `json:"missing"`      // runs that the suite wants and that nobody made, or that measured nothing
	Earlier int `json:"superseded"`   // runs that others took the place of
}

// summarize adds up what is in the files of a bundle, and writes it there.
func (r *runner) summarize(b *bundle) (Summary, error) {
	s := Summary{
		Header: b.Header, Torn: b.Torn, Counts: Counts{Cases: len(r.suite.Cases)}, Below: []string{},
		Methods: map[string]string{"precision": MethodShare, "recall": MethodShare, "f1": MethodF1},
	}
	byCase := map[results.Identity][]results.Row{}
	for _, row := range b.Rows() {
		if err := s.cost(b, row); err != nil {
			return s, err
		}
		if row.State == results.InfraError {
			s.Counts.Errors++
			continue
		}
		byCase[row.Identity()] = append(byCase[row.Identity()], row)
	}
	var all []Grading
	for _, c := range r.suite.Cases {
		rows := byCase[r.identity(b, c)]
		slices.SortFunc(rows, func(x, y results.Row) int { return y.Run - x.Run })
		counting := rows[:min(len(rows), b.Repeat)]
		s.Counts.Earlier += len(rows) - len(counting)
		s.Counts.Missing += b.Repeat - len(counting)
		for _, row := range counting {
			var g Grading
			if err := b.Read(*row.GradingPath, &g); err != nil {
				return s, err
			}
			all = append(all, g)
			s.Counts.Runs++
			if row.State == results.Passed {
				s.Counts.Passed++
			} else {
				s.Counts.Failed++
			}
		}
	}
	s.CostMicros += s.Lost
	s.Complete = s.Counts.Missing == 0
	s.Overall, s.ByLanguage, s.ByLens, s.ByKind = scoreOf(all), byLanguage(all), byLens(all), byKind(all)
	s.judge()
	err := b.WriteSummary(s)
	s.Bundle = where(r.options.Root, b.Dir)
	return s, err
}

func (s *Summary) cost(b *bundle, row results.Row) error {
	if row.MetricsPath == nil {
		return nil
	}
	var m metrics
	if err := b.Read(*row.MetricsPath, &m); err != nil {
		return err
	}
	s.CostMicros += m.CostMicros
	s.AgentCalls += m.AgentCalls
	return nil
}

// judge compares the score with the threshold. What is not known does not reach it.
func (s *Summary) judge() {
	for _, t := range []struct {
		name string
		want float64
		got  *Range
	}{
		{"precision", s.Threshold.Precision, s.Overall.Precision}, {"recall", s.Threshold.Recall, s.Overall.Recall}, {"f1", s.Threshold.F1, s.Overall.F1},
	} {
		if t.want > 0 && (t.got == nil || t.got.Value < t.want) {
			s.Below = append(s.Below, fmt.Sprintf("%s %s is below %.3f", t.name, value(t.got), t.want))
		}
	}
}

// Text is the summary for a terminal.
func (s Summary) Text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	title := s.Experiment + " · " + s.Target.Name
	if s.Variant.Name != "" {
		title += " · " + s.Variant.Name
	}
	o := s.Overall
	line("%s", title)
	line("")
	line("precision  %s   %d right, %d wrong (%d of those said again)", span(o.Precision), o.TruePositives, o.FalsePositives, o.Duplicates)
	line("recall     %s   %d found, %d missed", span(o.Recall), o.TruePositives, o.FalseNegatives)
	line("F1         %s", span(o.F1))
	line("")
	line("%-22s %6s %6s %6s   %-9s  %-9s  %s", "language", "found", "missed", "wrong", "precision", "recall", "F1")
	for _, name := range slices.Sorted(maps.Keys(s.ByLanguage)) {
		l := s.ByLanguage[name]
		line("%-22s %6d %6d %6d   %-9s  %-9s  %s", name, l.TruePositives, l.FalseNegatives, l.FalsePositives, value(l.Precision), value(l.Recall), value(l.F1))
	}
	line("")
	line("%-22s %6s %6s   %-9s  %6s %6s   %s", "lens", "found", "missed", "recall", "right", "wrong", "precision")
	for _, name := range slices.Sorted(maps.Keys(s.ByLens)) {
		l := s.ByLens[name]
		line("%-22s %6d %6d   %-9s  %6d %6d   %s", name, l.Found, l.Missed, value(l.Recall), l.Right, l.Wrong, value(l.Precision))
	}
	line("")
	line("%-22s %6s %6s   %s", "kind", "found", "missed", "recall")
	for _, name := range slices.Sorted(maps.Keys(s.ByKind)) {
		k := s.ByKind[name]
		line("%-22s %6d %6d   %s", name, k.Found, k.Missed, value(k.Recall))
	}
	line("")
	line("intervals  precision and recall: %s; F1: %s", MethodShare, MethodF1)
	line("cases      %d: %d runs passed, %d did not, %d are missing, %d infra errors", s.Counts.Cases, s.Counts.Passed, s.Counts.Failed, s.Counts.Missing, s.Counts.Errors)
	line("cost       $%.2f, %d agent calls", float64(s.CostMicros)/1e6, s.AgentCalls)
	line("bundle     %s", s.Bundle)
	if s.Torn {
		line("index      its last line was torn and has been skipped: that run is made again")
	}
	for _, below := range s.Below {
		line("threshold  %s", below)
	}
	return b.String()
}

// span is an estimate with its interval.
func span(r *Range) string {
	if r == nil {
		return fmt.Sprintf("%-21s", "none")
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", r.Value, r.Low, r.High)
}

func value(r *Range) string {
	if r == nil {
		return "none"
	}
	return fmt.Sprintf("%.3f", r.Value)
}
