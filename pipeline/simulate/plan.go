package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
)

// A Plan is a graph of issues and how their agents behave. Times are
// milliseconds of one call.
type Plan struct {
	Name   string  `json:"name"`
	Seed   uint64  `json:"seed,omitempty"` // with a call's step it decides whether the call fails
	Issues []Issue `json:"issues"`
}

// An Issue is one issue of a Plan.
type Issue struct {
	Name          string   `json:"name"` // as the graph wants it: lower case words joined by dashes
	DependsOn     []string `json:"depends_on,omitempty"`
	Files         []string `json:"files,omitempty"` // that its Coder changes beside one that nobody else does; shared ones meet in the Merger
	CoderMS       int64    `json:"coder_ms"`
	ReviewerMS    int64    `json:"reviewer_ms"`
	QAMS          int64    `json:"qa_ms,omitempty"` // above 0: the issue takes the path with QA and Synthesizer
	SynthesizerMS int64    `json:"synthesizer_ms,omitempty"`
	MergerMS      int64    `json:"merger_ms,omitempty"`
	AdvisorMS     int64    `json:"advisor_ms,omitempty"`

	// Iterations is at which one of a round the reviewer approves; 0 is the first.
	Iterations int `json:"iterations,omitempty"`
	// FailProbability is how likely an iteration's Coder does not get through.
	FailProbability float64 `json:"fail_probability,omitempty"`
	// Advisor is what the Issue Advisor decides, call by call; after the last
	// one it escalates.
	Advisor []coding.AdvisorAction `json:"advisor,omitempty"`
}

// MaxIssues is how many issues a plan may have.
const MaxIssues = 10_000

const (
	maxMS   = int64(time.Hour / time.Millisecond)
	maxName = 55 // leaves room for what a split adds
)

// Read reads a plan. It is strict: an unknown field, a wrong type or a value
// out of its range is an error that names the field.
func Read(r io.Reader) (Plan, error) {
	var raw struct {
		Name   string            `json:"name"`
		Seed   uint64            `json:"seed"`
		Issues []json.RawMessage `json:"issues"`
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return Plan{}, fmt.Errorf("read the plan: %w", err)
	}
	if err := strict(text, &raw); err != nil {
		return Plan{}, fmt.Errorf("plan: %w", err)
	}
	p := Plan{Name: raw.Name, Seed: raw.Seed, Issues: make([]Issue, len(raw.Issues))}
	for i, text := range raw.Issues {
		if err := strict(text, &p.Issues[i]); err != nil {
			return Plan{}, fmt.Errorf("plan: issues[%d]: %w", i, err)
		}
	}
	return p, p.check()
}

// strict decodes the only JSON value in text, and says of a mistake where it is.
func strict(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return errors.New("there is something after the end of the object")
		}
		return nil
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if wrong.Field == "" {
			return fmt.Errorf("want an object, got %s", wrong.Value)
		}
		return fmt.Errorf("%s: want %s, got %s", wrong.Field, wrong.Type, wrong.Value)
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// check wants values in their ranges and issues that are a graph.
func (p Plan) check() error {
	if len(p.Issues) == 0 || len(p.Issues) > MaxIssues {
		return fmt.Errorf("plan: issues: want 1 to %d, got %d", MaxIssues, len(p.Issues))
	}
	for i, is := range p.Issues {
		if err := is.check(); err != nil {
			return fmt.Errorf("plan: issues[%d].%w", i, err)
		}
	}
	if _, err := graph.New(p.graph()); err != nil {
		return fmt.Errorf("plan: issues: %w", err)
	}
	return nil
}

func (is Issue) check() error {
	if is.Name == "" || len(is.Name) > maxName {
		return fmt.Errorf("name: want 1 to %d characters, got %q", maxName, is.Name)
	}
	for _, t := range []struct {
		field string
		ms    int64
	}{
		{"coder_ms", is.CoderMS}, {"reviewer_ms", is.ReviewerMS}, {"qa_ms", is.QAMS},
		{"synthesizer_ms", is.SynthesizerMS}, {"merger_ms", is.MergerMS}, {"advisor_ms", is.AdvisorMS},
	} {
		if t.ms < 0 || t.ms > maxMS {
			return fmt.Errorf("%s: want 0 to %d, got %d", t.field, maxMS, t.ms)
		}
	}
	if is.Iterations < 0 || is.Iterations > maxIterations {
		return fmt.Errorf("iterations: want 0 to %d, got %d", maxIterations, is.Iterations)
	}
	if !(is.FailProbability >= 0 && is.FailProbability <= 1) {
		return fmt.Errorf("fail_probability: want 0 to 1, got %v", is.FailProbability)
	}
	for i, f := range is.Files {
		if !filepath.IsLocal(f) || f == "." || strings.HasPrefix(f, ".") || strings.ContainsAny(f, "\\\x00") {
			return fmt.Errorf("files[%d]: want a path inside the repository that begins with no dot, got %q", i, f)
		}
	}
	for i, a := range is.Advisor {
		if !slices.Contains(advisorActions, a) {
			return fmt.Errorf("advisor[%d]: want one of %v, got %q", i, advisorActions, a)
		}
	}
	return nil
}

var advisorActions = []coding.AdvisorAction{
	coding.RetryModified, coding.RetryApproach, coding.Split, coding.AcceptWithDebt, coding.EscalateToReplan,
}

// graph is the plan as the engine gets it.
func (p Plan) graph() []graph.Issue {
	out := make([]graph.Issue, len(p.Issues))
	for i, is := range p.Issues {
		out[i] = graph.Issue{
			Name: is.Name, Title: "Simulate " + is.Name, Description: "Write the file of " + is.Name + ".",
			AcceptanceCriteria: []graph.Criterion{{Text: "The file of " + is.Name + " is there"}},
			DependsOn:          is.DependsOn, FilesToModify: is.Files,
			Guidance: graph.Guidance{NeedsDeeperQA: is.QAMS > 0, RiskRationale: "simulated"},
		}
	}
	return out
}

// How agents of a random plan spread around their medians: the sigma of the
// logarithm. A call in forty takes 2.7 times the median or more.
const spread = 0.5

// Random makes a plan of n issues from a seed; the same seed gives the same
// plan. Every issue takes a Coder and a reviewer, whose times are lognormal with
// medians of 400 and 140 ms. An eighth of the issues can start at once, the
// others build on one or two earlier ones.
func Random(n int, seed uint64) Plan {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	took := func(median float64) int64 { return max(1, int64(median*math.Exp(spread*random.NormFloat64()))) }
	p := Plan{Name: fmt.Sprintf("random-%d-seed-%d", n, seed), Seed: seed}
	for i := range n {
		is := Issue{Name: fmt.Sprintf("part-%04d", i+1), CoderMS: took(400), ReviewerMS: took(140)}
		if roots := max(n/8, 4); i >= roots {
			for range 1 + random.IntN(2) {
				if on := p.Issues[random.IntN(i)].Name; !slices.Contains(is.DependsOn, on) {
					is.DependsOn = append(is.DependsOn, on)
				}
			}
		}
		p.Issues = append(p.Issues, is)
	}
	return p
}
