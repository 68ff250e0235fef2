package results

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/gowebpki/jcs"
)

// An Identity is what makes two rows the same unit of work: resuming, running
// again, adding up and comparing go by it and by nothing else. An empty field is
// an absent one.
type Identity struct {
	EvalPath string // the suite's file, or the repository's address
	Suite    string
	TestID   string
	PromptID string
	Target   string
	Variant  string
}

// RowID names the unit in folders and links: what can be read of its test, and a
// digest of the whole identity.
func (i Identity) RowID() string {
	sum := sha256.Sum256(i.canonical())
	return safe(i.TestID, maxName) + "--" + hex.EncodeToString(sum[:6])
}

// canonical is the identity as RFC 8785 spells it; absent fields are null.
func (i Identity) canonical() []byte {
	fields := map[string]*string{}
	for key, value := range i.fields() {
		fields[key] = nil
		if value != "" {
			fields[key] = &value
		}
	}
	text, err := json.Marshal(fields)
	if err == nil {
		text, err = jcs.Transform(text)
	}
	if err != nil {
		panic(err) // strings always have a JSON
	}
	return text
}

func (i Identity) fields() map[string]string {
	return map[string]string{
		"eval_path": i.EvalPath, "suite": i.Suite, "test_id": i.TestID, "prompt_id": i.PromptID, "target": i.Target, "variant": i.Variant,
	}
}

// maxName bounds a name in a path, in bytes.
const maxName = 64

// safe is a name as one part of a path: never hidden, never a step upward.
func safe(name string, most int) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, name)
	clean = strings.TrimLeft(clean[:min(len(clean), most)], ".-")
	if clean == "" {
		return "unnamed"
	}
	return clean
}

// folder is safe, and differs for names that differ: what had to be changed has a
// digest of the name after it.
func folder(name string) string {
	clean := safe(name, maxName)
	if clean == name {
		return clean
	}
	sum := sha256.Sum256([]byte(name))
	return safe(name, maxName-9) + "-" + hex.EncodeToString(sum[:4])
}

// A State is how a run of a row ended.
type State string

// The states.
const (
	Passed State = "passed"
	Failed State = "failed"
	// InfraError: it says nothing of what was to be measured, because something
	// around it failed.
	InfraError State = "infra_error"
)

// A Row is one run of one unit of work, as a line of index.jsonl. Its paths are
// relative to the bundle; null means that there is no such file.
type Row struct {
	Experiment string            `json:"experiment"`
	Timestamp  string            `json:"timestamp"`
	Target     string            `json:"target"`
	Variant    *string           `json:"variant"`
	EvalPath   string            `json:"eval_path"`
	Suite      string            `json:"suite"`
	TestID     string            `json:"test_id"`
	PromptID   *string           `json:"prompt_id"`
	RowID      string            `json:"row_id"`
	Run        int               `json:"run"` // from 1
	State      State             `json:"state"`
	Cause      string            `json:"cause,omitempty"` // of an infra_error
	Display    map[string]string `json:"display"`

	CasePath       *string `json:"case_path"`
	SummaryPath    *string `json:"summary_path"`
	OutcomePath    *string `json:"outcome_path"`
	GradingPath    *string `json:"grading_path"`
	MetricsPath    *string `json:"metrics_path"`
	TimingPath     *string `json:"timing_path"`
	DebtPath       *string `json:"debt_path"`
	TranscriptPath *string `json:"transcript_path"`
	OutputPath     *string `json:"output_path"`
	ProvenancePath *string `json:"provenance_path"`
}

// Identity is the unit that the row is a run of.
func (r Row) Identity() Identity {
	return Identity{
		EvalPath: r.EvalPath, Suite: r.Suite, TestID: r.TestID, PromptID: deref(r.PromptID), Target: r.Target, Variant: deref(r.Variant),
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
