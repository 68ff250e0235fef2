package eval

import (
	"math"
	"math/rand/v2"
	"slices"
)

// A Score is a confusion table and what follows from it.
type Score struct {
	Cases          int `json:"cases"`
	TruePositives  int `json:"true_positives"`
	FalsePositives int `json:"false_positives"`
	FalseNegatives int `json:"false_negatives"`
	// Duplicates are the false positives that name a fault that was found already.
	Duplicates int    `json:"duplicates"`
	Precision  *Range `json:"precision"` // null where nothing was found
	Recall     *Range `json:"recall"`    // null where there was nothing to find
	F1         *Range `json:"f1"`        // null where there was neither
}

// A Range is an estimate and its interval of 95 per cent.
type Range struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// The methods behind the intervals.
const (
	// MethodShare is that of precision and recall.
	MethodShare = "Wilson score interval, 95 %"
	// MethodF1 is that of F1.
	MethodF1 = "percentile bootstrap over cases, 2000 resamples, seed 1, 95 %"
)

const resamples = 2000

// scoreOf adds gradings up.
func scoreOf(all []Grading) Score {
	s := Score{Cases: len(all)}
	for _, g := range all {
		s.TruePositives += len(g.Matches)
		s.FalseNegatives += len(g.Missed)
		s.FalsePositives += len(g.False)
		for _, c := range g.False {
			if c.Again {
				s.Duplicates++
			}
		}
	}
	s.Precision = wilson(s.TruePositives, s.TruePositives+s.FalsePositives)
	s.Recall = wilson(s.TruePositives, s.TruePositives+s.FalseNegatives)
	s.F1 = bootstrap(all)
	return s
}

// wilson is the score interval of a share (E. B. Wilson, JASA 22, 1927): unlike
// the usual one it stays between 0 and 1, and holds for small numbers.
func wilson(hits, of int) *Range {
	if of == 0 {
		return nil
	}
	const z = 1.959963984540054 // of 95 per cent
	n, p := float64(of), float64(hits)/float64(of)
	mid := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return &Range{Value: p, Low: min(p, max(0, mid-half)), High: max(p, min(1, mid+half))}
}

// bootstrap is F1 and its interval: cases are drawn anew, with what was found and
// missed in them, since the findings of one case depend on each other.
func bootstrap(all []Grading) *Range {
	counts := make([][3]int, len(all))
	for i, g := range all {
		counts[i] = [3]int{len(g.Matches), len(g.False), len(g.Missed)}
	}
	f1, ok := f1Of(counts)
	if !ok {
		return nil
	}
	random := rand.New(rand.NewPCG(1, 0))
	drawn := make([][3]int, len(counts))
	var values []float64
	for range resamples {
		for i := range drawn {
			drawn[i] = counts[random.IntN(len(counts))]
		}
		if v, ok := f1Of(drawn); ok {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	at := func(share float64) float64 { return values[int(share*float64(len(values)-1)+0.5)] }
	if len(values) == 0 {
		return &Range{Value: f1, Low: 0, High: 1}
	}
	return &Range{Value: f1, Low: at(0.025), High: at(0.975)}
}

func f1Of(counts [][3]int) (float64, bool) {
	right, wrong := 0, 0
	for _, c := range counts {
		right += c[0]
		wrong += c[1] + c[2]
	}
	if right+wrong == 0 {
		return 0, false
	}
	return 2 * float64(right) / float64(2*right+wrong), true
}

// A KindScore says how many faults of a kind were found.
type KindScore struct {
	Found  int    `json:"found"`
	Missed int    `json:"missed"`
	Recall *Range `json:"recall"`
}

// A LensScore says how many faults that are the subject of a lens were found, by
// whomever, and how much of what the lens itself claimed is right.
type LensScore struct {
	KindScore
	Right     int    `json:"right"`
	Wrong     int    `json:"wrong"`
	Precision *Range `json:"precision"`
}

// byLanguage is a score for each language.
func byLanguage(all []Grading) map[string]Score {
	parts := map[string][]Grading{}
	for _, g := range all {
		parts[g.Language] = append(parts[g.Language], g)
	}
	out := map[string]Score{}
	for language, part := range parts {
		out[language] = scoreOf(part)
	}
	return out
}

func byKind(all []Grading) map[string]KindScore {
	out := map[string]KindScore{}
	for _, g := range all {
		for _, m := range g.Matches {
			s := out[m.Truth.Kind]
			s.Found++
			out[m.Truth.Kind] = s
		}
		for _, t := range g.Missed {
			s := out[t.Kind]
			s.Missed++
			out[t.Kind] = s
		}
	}
	for kind, s := range out {
		s.Recall = wilson(s.Found, s.Found+s.Missed)
		out[kind] = s
	}
	return out
}

func byLens(all []Grading) map[string]LensScore {
	table := map[string]*LensScore{}
	at := func(lens string) *LensScore {
		if table[lens] == nil {
			table[lens] = &LensScore{}
		}
		return table[lens]
	}
	for _, g := range all {
		for _, m := range g.Matches {
			if m.Truth.Lens != "" {
				at(m.Truth.Lens).Found++
			}
			at(m.Claim.Lens).Right++
		}
		for _, t := range g.Missed {
			if t.Lens != "" {
				at(t.Lens).Missed++
			}
		}
		for _, c := range g.False {
			at(c.Lens).Wrong++
		}
	}
	out := map[string]LensScore{}
	for lens, s := range table {
		s.Recall, s.Precision = wilson(s.Found, s.Found+s.Missed), wilson(s.Right, s.Right+s.Wrong)
		out[lens] = *s
	}
	return out
}
