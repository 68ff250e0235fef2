// Package eval measures agents on cases whose truth is known.
//
// The model: a suite names targets (a runtime and models), variants
// (configurations) and cases. A case is a change of a small repository with the
// faults that were planted in it; a Reviewer looks at it, a grader compares what
// was found with what is there, and a Summary adds up.
//
// Promises: what a suite says and this version cannot do is refused, by name and
// line, before anything runs; a run that failed for a reason of its surroundings
// counts as nothing and is told of; numbers come from the files of a bundle, so
// that who resumes gets the same ones as who was never interrupted.
package eval

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v4"

	"github.com/slipway-dev/slipway/config"
)

// A Suite is what a suite file says.
type Suite struct {
	Experiment     string    `yaml:"experiment"`
	Targets        []Target  `yaml:"targets"`
	Variants       []Variant `yaml:"variants"` // none: one without a name, and with nothing to say
	Cases          []Case    `yaml:"cases"`
	Repeat         int       `yaml:"repeat"`          // runs of each case; 0 is 1
	Budget         Money     `yaml:"budget_usd"`      // of the whole evaluation; 0 is no bound
	MaxConcurrency int       `yaml:"max_concurrency"` // cases at a time; 0 is 4
	Threshold      Threshold `yaml:"threshold"`

	File   string `yaml:"-"` // as it was named
	Dir    string `yaml:"-"` // what its paths are relative to
	Digest string `yaml:"-"` // of the suite and of every file that it names
}

// Money is an amount in micro-dollars. In a suite it is US dollars, as config.ParseUSD
// reads them.
type Money int64

// UnmarshalYAML reads an amount.
func (m *Money) UnmarshalYAML(n *yaml.Node) error {
	v, err := config.ParseUSD(n.Value)
	if err != nil {
		return fmt.Errorf("budget_usd: %w", err)
	}
	*m = Money(v)
	return nil
}

// A Target is who is measured.
type Target struct {
	Name       string            `yaml:"name" json:"name"`
	Runtime    string            `yaml:"runtime" json:"runtime,omitempty"`       // empty: as configured
	Models     map[string]string `yaml:"models" json:"models,omitempty"`         // by role, as models of slipway.yml
	Recordings string            `yaml:"recordings" json:"recordings,omitempty"` // of runtime replay: a directory with CASE.txtar, and shared.txtar for all
}

// A Variant is a configuration that the targets are measured with.
type Variant struct {
	Name   string         `yaml:"name" json:"name"`
	Config map[string]any `yaml:"config" json:"config,omitempty"` // as slipway.yml, over the server's
}

// A Case is one change with a known truth.
type Case struct {
	ID      string      `yaml:"id"`
	Suite   string      `yaml:"suite"` // empty: the experiment
	Kind    string      `yaml:"kind"`  // review
	Fixture string      `yaml:"fixture"`
	Repo    string      `yaml:"repo"` // instead of the fixture: a git repository
	Base    string      `yaml:"base"` // of the repo: the commit that the diff applies to; empty is HEAD
	Goal    string      `yaml:"goal"` // what the change is for, told to the agents
	Diff    string      `yaml:"diff"`
	Graders []yaml.Node `yaml:"graders"`

	Grader FindingMatch      `yaml:"-"`
	Files  map[string]string `yaml:"-"` // of the fixture, by path
	Patch  []byte            `yaml:"-"`
	line   int
}

// KindReview is a case whose change is reviewed.
const KindReview = "review"

// UnmarshalYAML notes the line of a case, for what is wrong with it.
func (c *Case) UnmarshalYAML(n *yaml.Node) error {
	type plain Case
	c.line = n.Line
	return n.Load((*plain)(c), yaml.WithKnownFields())
}

// A Threshold is what an evaluation must reach. Zero asks for nothing.
type Threshold struct {
	Precision float64 `yaml:"precision" json:"precision,omitempty"`
	Recall    float64 `yaml:"recall" json:"recall,omitempty"`
	F1        float64 `yaml:"f1" json:"f1,omitempty"`
}

// FindingMatch is the grader of reviews: what was found is compared with what is
// there.
type FindingMatch struct {
	Grader    string  `yaml:"grader" json:"grader"`
	Tolerance *int    `yaml:"tolerance" json:"tolerance"` // lines that a finding may be off; nil is DefaultTolerance
	SameLens  bool    `yaml:"same_lens" json:"same_lens"` // a finding has to come from the lens whose fault it is
	Truth     []Truth `yaml:"truth" json:"truth"`         // none: the change is clean
}

// A Truth is one planted fault.
type Truth struct {
	File      string `yaml:"file" json:"file"`
	StartLine int    `yaml:"start_line" json:"start_line"` // in the changed file
	EndLine   int    `yaml:"end_line" json:"end_line"`     // 0 is the start
	Kind      string `yaml:"kind" json:"kind"`             // such as off_by_one
	Lens      string `yaml:"lens" json:"lens,omitempty"`   // whose subject it is
}

func (t Truth) last() int { return max(t.StartLine, t.EndLine) }

// GraderFindings is the name of FindingMatch, and the only grader there is.
const GraderFindings = "finding_match"

// DefaultTolerance is how many lines a finding may be away from its truth.
const DefaultTolerance = 2

// Read reads a suite and every file that it names. What is wrong with it is a
// *config.Error with all of it.
func Read(file string) (Suite, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Suite{}, fmt.Errorf("read the suite: %w", err)
	}
	s := Suite{File: file, Dir: filepath.Dir(file)}
	if problems := s.parse(text); len(problems) > 0 {
		return s, &config.Error{Origin: file, Problems: problems}
	}
	var problems []config.Problem
	sum := sha256.New()
	sum.Write(text)
	for i := range s.Cases {
		if err := s.load(&s.Cases[i], sum); err != nil {
			problems = append(problems, config.Problem{Line: s.Cases[i].line, Key: s.Cases[i].ID, Text: err.Error()})
		}
	}
	if len(problems) > 0 {
		return s, &config.Error{Origin: file, Problems: problems}
	}
	s.Digest = hex.EncodeToString(sum.Sum(nil))
	return s, nil
}

var notFound = regexp.MustCompile(`^field (\S+) not found in type \S+$`)

// parse decodes the text and checks what needs no other file.
func (s *Suite) parse(text []byte) (problems []config.Problem) {
	err := yaml.Load(text, s, yaml.WithKnownFields())
	if all, ok := errors.AsType[*yaml.LoadErrors](err); ok {
		for _, e := range all.Errors {
			problems = append(problems, problemOf(e))
		}
		return problems
	}
	if one, ok := errors.AsType[*yaml.LoadError](err); ok {
		return []config.Problem{problemOf(one)}
	}
	if err != nil {
		return []config.Problem{{Text: "not one YAML document: " + err.Error()}}
	}
	return s.check()
}

func problemOf(e *yaml.LoadError) config.Problem {
	p := config.Problem{Line: e.Mark.Line, Text: e.Message}
	if m := notFound.FindStringSubmatch(e.Message); m != nil {
		p.Key, p.Text = m[1], "unknown key"
	}
	return p
}

// name is what may be a name in a suite: it is shown on one line.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._/:@+-]{0,79}$`)

// caseID names files, too.
var caseID = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

func (s *Suite) check() (problems []config.Problem) {
	complain := func(line int, key, format string, args ...any) {
		problems = append(problems, config.Problem{Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
	}
	if !name.MatchString(s.Experiment) {
		complain(0, "experiment", "want a name of up to 80 letters, digits, spaces and ._/:@+-, got %q", s.Experiment)
	}
	if s.Repeat < 0 || s.Repeat > 100 {
		complain(0, "repeat", "want 1 to 100, got %d", s.Repeat)
	}
	if s.MaxConcurrency < 0 || s.MaxConcurrency > 64 {
		complain(0, "max_concurrency", "want 1 to 64, got %d", s.MaxConcurrency)
	}
	for key, v := range map[string]float64{"precision": s.Threshold.Precision, "recall": s.Threshold.Recall, "f1": s.Threshold.F1} {
		if v < 0 || v > 1 || math.IsNaN(v) {
			complain(0, "threshold."+key, "want 0 to 1, got %g", v)
		}
	}
	var targets, variants, cases []string
	for _, t := range s.Targets {
		targets = append(targets, t.Name)
		if t.Recordings != "" && t.Runtime != "replay" {
			complain(0, "targets", "%s: recordings are what runtime replay plays, and its runtime is %q", t.Name, t.Runtime)
		}
		if t.Recordings == "" && t.Runtime == "replay" {
			complain(0, "targets", "%s: runtime replay wants recordings", t.Name)
		}
	}
	for _, v := range s.Variants {
		variants = append(variants, v.Name)
	}
	for i := range s.Cases {
		c := &s.Cases[i]
		cases = append(cases, c.ID)
		if !caseID.MatchString(c.ID) {
			complain(c.line, "id", "want up to 64 of a-z, 0-9, _ and -, got %q", c.ID)
		}
		problems = append(problems, c.check()...)
	}
	for key, names := range map[string][]string{"targets": targets, "variants": variants, "cases": cases} {
		for i, n := range names {
			if key != "cases" && !name.MatchString(n) {
				complain(0, key, "want a name of up to 80 letters, digits, spaces and ._/:@+-, got %q", n)
			}
			if slices.Contains(names[:i], n) {
				complain(0, key, "%q is there twice", n)
			}
		}
	}
	if len(cases) == 0 {
		complain(0, "cases", "there is none")
	}
	slices.SortStableFunc(problems, func(a, b config.Problem) int { return a.Line - b.Line })
	return problems
}

// check looks at what the case says of itself.
func (c *Case) check() (problems []config.Problem) {
	complain := func(line int, key, format string, args ...any) {
		problems = append(problems, config.Problem{Line: line, Key: key, Text: fmt.Sprintf(format, args...)})
	}
	if c.Kind != KindReview {
		complain(c.line, "kind", "%q is not supported; there is: %s", c.Kind, KindReview)
		return problems
	}
	if (c.Fixture == "") == (c.Repo == "") {
		complain(c.line, "fixture", "give a fixture or a repo, and not both")
	}
	if c.Base != "" && c.Repo == "" {
		complain(c.line, "base", "it is a commit of a repo, and there is none")
	}
	if c.Diff == "" {
		complain(c.line, "diff", "it is missing: the patch that is reviewed")
	}
	if len(c.Graders) != 1 {
		complain(c.line, "graders", "want one, got %d", len(c.Graders))
	}
	for i := range c.Graders {
		problems = append(problems, c.grade(&c.Graders[i])...)
	}
	return problems
}

// grade reads a grader, whose name decides what else it may say.
func (c *Case) grade(n *yaml.Node) []config.Problem {
	var kind struct {
		Grader string `yaml:"grader"`
	}
	if err := n.Load(&kind); err != nil {
		return []config.Problem{{Line: n.Line, Key: "graders", Text: "want a mapping with the key grader"}}
	}
	if kind.Grader != GraderFindings {
		return []config.Problem{{Line: n.Line, Key: "grader", Text: fmt.Sprintf("%q is not supported; there is: %s", kind.Grader, GraderFindings)}}
	}
	err := n.Load(&c.Grader, yaml.WithKnownFields())
	if all, ok := errors.AsType[*yaml.LoadErrors](err); ok {
		var problems []config.Problem
		for _, e := range all.Errors {
			problems = append(problems, problemOf(e))
		}
		return problems
	}
	if err != nil {
		return []config.Problem{{Line: n.Line, Key: "graders", Text: err.Error()}}
	}
	for _, t := range c.Grader.Truth {
		if t.File == "" || t.StartLine < 1 || t.Kind == "" || t.EndLine != 0 && t.EndLine < t.StartLine {
			return []config.Problem{{Line: n.Line, Key: "truth", Text: "want a file, a start_line from 1, an end_line not before it, and a kind"}}
		}
	}
	if t := c.Grader.Tolerance; t != nil && *t < 0 {
		return []config.Problem{{Line: n.Line, Key: "tolerance", Text: fmt.Sprintf("want lines, got %d", *t)}}
	}
	return nil
}

// load reads the files of a case into it and into the digest.
func (s *Suite) load(c *Case, digest io.Writer) error {
	patch, err := os.ReadFile(s.path(c.Diff))
	if err != nil {
		return fmt.Errorf("diff: %w", err)
	}
	c.Patch = patch
	_, _ = digest.Write(patch) // a hash takes everything
	if c.Repo != "" {
		return nil
	}
	text, err := os.ReadFile(s.path(c.Fixture))
	if err != nil {
		return fmt.Errorf("fixture: %w", err)
	}
	_, _ = digest.Write(text)
	c.Files = map[string]string{}
	for _, f := range txtar.Parse(text).Files {
		c.Files[f.Name] = string(f.Data)
	}
	if len(c.Files) == 0 {
		return fmt.Errorf("fixture: %s is not a txtar archive with files", c.Fixture)
	}
	return nil
}

// path is where a file is that the suite names.
func (s *Suite) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(s.Dir, filepath.FromSlash(name))
}

// Target is the target of that name.
func (s Suite) Target(name string) (Target, error) {
	var names []string
	for _, t := range s.Targets {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return Target{}, fmt.Errorf("there is no target %q; there are: %s", name, strings.Join(names, ", "))
}

// Keep leaves the cases with these ids; none: all.
func (s *Suite) Keep(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	for _, id := range ids {
		if !slices.ContainsFunc(s.Cases, func(c Case) bool { return c.ID == id }) {
			return fmt.Errorf("there is no case %q", id)
		}
	}
	s.Cases = slices.DeleteFunc(slices.Clone(s.Cases), func(c Case) bool { return !slices.Contains(ids, c.ID) })
	return nil
}

// Path is where a file or directory is that the suite names.
func (s Suite) Path(name string) string { return s.path(name) }

// languages are those that a breakdown names, by the ending of a file's name.
var languages = map[string]string{
	".go": "Go", ".ts": "TypeScript", ".tsx": "TypeScript", ".js": "JavaScript", ".py": "Python", ".rs": "Rust", ".java": "Java",
	".rb": "Ruby", ".c": "C", ".cc": "C++", ".cpp": "C++", ".cs": "C#", ".kt": "Kotlin", ".php": "PHP", ".swift": "Swift",
}

var patched = regexp.MustCompile(`(?m)^(?:\+\+\+ b|--- a)/(\S+)`)

// Language is that of the first file of the patch that has one; of a change that
// touches no code, that of most files of the fixture.
func (c Case) Language() string {
	for _, m := range patched.FindAllStringSubmatch(string(c.Patch), -1) {
		if l := languages[filepath.Ext(m[1])]; l != "" {
			return l
		}
	}
	best, count := "other", map[string]int{}
	for f := range c.Files {
		if l := languages[filepath.Ext(f)]; l != "" {
			count[l]++
		}
	}
	for l, n := range count {
		if n > count[best] || n == count[best] && strings.Compare(l, best) < 0 {
			best = l
		}
	}
	return best
}
