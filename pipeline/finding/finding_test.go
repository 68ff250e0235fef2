package finding

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestSeverityBounds(t *testing.T) {
	for name, c := range map[string]struct {
		s, bound Severity
		want     bool
	}{
		"the bound itself":            {Medium, Medium, true},
		"worse":                       {Critical, High, true},
		"less":                        {Low, Medium, false},
		"no bound":                    {Low, "", true},
		"no severity, no bound":       {"", "", true},
		"an unknown word":             {"catastrophic", Low, false},
		"an unknown word as no bound": {Low, "nothing", true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.s.AtLeast(c.bound); got != c.want {
				t.Errorf("%q at least %q: %v", c.s, c.bound, got)
			}
		})
	}
	if !Low.Known() || Severity("catastrophic").Known() || Severity("").Known() {
		t.Error("the known severities are critical, high, medium and low")
	}
}

func TestWhatCounts(t *testing.T) {
	confirmed := Entry{Finding: Finding{Severity: High}, Verdict: Confirmed, Confidence: 80, State: New}
	change := func(f func(*Entry)) Entry { e := confirmed; f(&e); return e }
	for name, c := range map[string]struct {
		e    Entry
		want bool
	}{
		"at both bounds":   {confirmed, true},
		"still open":       {change(func(e *Entry) { e.State = Open }), true},
		"fixed":            {change(func(e *Entry) { e.State = Fixed }), false},
		"too uncertain":    {change(func(e *Entry) { e.Confidence = 79 }), false},
		"not severe":       {change(func(e *Entry) { e.Severity = Medium }), false},
		"rejected":         {change(func(e *Entry) { e.Verdict = Rejected }), false},
		"nobody was asked": {change(func(e *Entry) { e.Verdict = Uncertain }), false},
		"no verdict":       {change(func(e *Entry) { e.Verdict = "" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.e.Counts(High, 80); got != c.want {
				t.Errorf("%+v counts: %v", c.e, got)
			}
		})
	}
}

func TestFingerprint(t *testing.T) {
	first := Fingerprint("csv.go", "Write", "The error of Flush is dropped at line 31.")
	for name, c := range map[string]struct {
		path, symbol, claim string
		same                bool
	}{
		"the line moved":        {"csv.go", "Write", "The error of Flush is dropped at line 48.", true},
		"case and punctuation":  {"csv.go", "Write", "the error of `flush` is dropped", true},
		"another order":         {"csv.go", "Write", "dropped: error of Flush", true},
		"another file":          {"tsv.go", "Write", "The error of Flush is dropped", false},
		"another function":      {"csv.go", "Close", "The error of Flush is dropped", false},
		"another fault":         {"csv.go", "Write", "The error of Close is dropped", false},
		"a border that shifted": {"csv.goW", "rite", "The error of Flush is dropped", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Fingerprint(c.path, c.symbol, c.claim); (got == first) != c.same {
				t.Errorf("%s, the first is %s", got, first)
			}
		})
	}
	if got := Words("Ünïcode names of x_y, x_y and 42 are LOST"); !slices.Equal(got, []string{"lost", "names", "x_y", "ünïcode"}) {
		t.Errorf("words %q", got)
	}
}

func TestEntryIsOneFlatObject(t *testing.T) {
	text, err := json.Marshal(Entry{Finding: Finding{Severity: Low, Title: "T", Claim: "C"}, ID: "1", Verdict: Uncertain, State: New})
	const want = `{"severity":"low","title":"T","claim":"C","id":"1","lens":"","agreement":0,"verdict":"uncertain","confidence":0,"state":"new"}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}
