package eval

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/results"
)

// A Trial is one run of a case with a target and a variant.
type Trial struct {
	Case    Case
	Target  Target
	Variant Variant
	Run     int // from 1
}

// An Outcome is what a Reviewer saw.
type Outcome struct {
	Review     report.Review
	Transcript string // directory of what agents said; empty: none is kept
}

// A Reviewer reviews the change of a trial. An error, and a review that is not
// whole, is a failure of its surroundings. The outcome has what it cost all the same.
type Reviewer interface {
	Review(ctx context.Context, t Trial) (Outcome, error)
}

// Again says what of an earlier evaluation is taken up.
type Again string

// What can be taken up. The zero value begins a new evaluation.
const (
	Fresh  Again = ""
	Resume Again = "resume"       // what has no run yet
	Failed Again = "rerun-failed" // and what did not pass
	Errors Again = "retry-errors" // and what failed by its surroundings
)

// Options say how a suite is run.
type Options struct {
	Root      string // of results
	EvalPath  string // what names the suite in rows
	Again     Again  // what is taken up keeps its cases, repeats and threshold
	Timestamp string // of the evaluation that is taken up; empty is the newest
	Results   results.Options
	Reviewer  Reviewer
	Now       func() time.Time
	// Heard is told of each run when it is kept, one at a time. It may be nil.
	Heard func(Progress)
}

// Progress is a run that has ended.
type Progress struct {
	Done, All int
	Row       results.Row
	Grading   Grading // empty where the row is an infra_error
	Took      time.Duration
	Dir       string // of its bundle
}

// ErrBudget ends an evaluation whose money is spent.
var ErrBudget = errors.New("the budget of the evaluation is spent")

// Run runs what is to be run of a suite and returns a summary for each target and
// variant. When ctx ends, or with ErrBudget, what was finished is kept and the
// summaries say what is missing.
func Run(ctx context.Context, s Suite, o Options) ([]Summary, error) {
	r := &runner{suite: s, options: o}
	if err := r.open(); err != nil {
		return nil, err
	}
	err := r.work(ctx)
	var all []Summary
	for _, b := range r.bundles {
		sum, serr := r.summarize(b)
		if serr != nil {
			return all, errors.Join(err, serr)
		}
		all = append(all, sum)
	}
	return all, err
}

// runner is one evaluation under way.
type runner struct {
	suite   Suite
	options Options
	bundles []*bundle

	mu    sync.Mutex // guards what follows
	spent int64      // micro-dollars, of all bundles
	done  int
	all   int
}

// A bundle is where the runs of one target and variant go.
type bundle struct {
	*results.Bundle
	Header
	target  Target
	variant Variant
}

// open finds or makes the bundles, and counts what was spent in them.
func (r *runner) open() error {
	variants := r.suite.Variants
	if len(variants) == 0 {
		variants = []Variant{{}}
	}
	var campaign results.Campaign
	var known []*results.Bundle
	var err error
	if r.options.Again == Fresh {
		campaign, err = results.Begin(r.options.Root, r.suite.Experiment, r.options.Now(), r.options.Results)
	} else {
		known, err = r.earlier()
	}
	if err != nil {
		return err
	}
	for _, t := range r.suite.Targets {
		for _, v := range variants {
			b := &bundle{target: t, variant: v}
			if r.options.Again == Fresh {
				err = r.begin(b, campaign)
			} else {
				err = r.take(b, known)
			}
			if err != nil {
				return err
			}
			r.bundles = append(r.bundles, b)
		}
	}
	return nil
}

func (r *runner) begin(b *bundle, c results.Campaign) (err error) {
	s := r.suite
	b.Header = Header{
		Experiment: s.Experiment, Timestamp: c.Timestamp, Target: b.target, Variant: b.variant, EvalPath: r.options.EvalPath,
		SuiteDigest: s.Digest, Repeat: max(1, s.Repeat), Threshold: s.Threshold, Started: r.options.Now().UTC(),
	}
	for _, c := range s.Cases {
		b.Cases = append(b.Cases, c.ID)
	}
	if b.Bundle, err = c.Bundle(b.target.Name, b.variant.Name); err != nil {
		return err
	}
	_, err = r.summarize(b) // who finds it knows what it is to become
	return err
}

// earlier are the bundles of the evaluation that is taken up. They are known by
// what they say, wherever they are.
func (r *runner) earlier() ([]*results.Bundle, error) {
	all, err := results.Discover(r.options.Root, r.options.Results)
	if err != nil {
		return nil, err
	}
	newest := r.options.Timestamp
	byStamp := map[string][]*results.Bundle{}
	for _, b := range all {
		var h Header
		if b.ReadSummary(&h) != nil || h.Experiment != r.suite.Experiment || h.EvalPath != r.options.EvalPath {
			continue // of somebody else
		}
		byStamp[h.Timestamp] = append(byStamp[h.Timestamp], b)
		if r.options.Timestamp == "" {
			newest = max(newest, h.Timestamp)
		}
	}
	if len(byStamp[newest]) == 0 {
		return nil, fmt.Errorf("there is no evaluation %s of %s in %s to go on with", cmp.Or(r.options.Timestamp, "at all"), r.suite.Experiment, r.options.Root)
	}
	return byStamp[newest], nil
}

func (r *runner) take(b *bundle, known []*results.Bundle) error {
	for _, k := range known {
		var h Header
		if err := k.ReadSummary(&h); err != nil {
			return err
		}
		if h.Target.Name != b.target.Name || h.Variant.Name != b.variant.Name {
			continue
		}
		if h.SuiteDigest != r.suite.Digest {
			return fmt.Errorf("the suite has changed since the evaluation %s: its numbers would be of two suites; begin a new one", h.Timestamp)
		}
		b.Bundle, b.Header = k, h
		if err := r.suite.Keep(h.Cases); err != nil {
			return err
		}
		for _, row := range k.Rows() {
			if row.MetricsPath == nil {
				continue
			}
			var m metrics
			if err := k.Read(*row.MetricsPath, &m); err != nil {
				return err
			}
			r.spent += m.CostMicros
		}
		r.spent += h.Lost
		return nil
	}
	return fmt.Errorf("that evaluation has no bundle of target %s, variant %q; begin a new one", b.target.Name, b.variant.Name)
}

// job is a trial and where its run goes.
type job struct {
	*bundle
	Trial
}

// jobs are the runs that are missing, case by case, so that an evaluation that is
// stopped has seen as many cases of every target.
func (r *runner) jobs() (all []job) {
	for _, c := range r.suite.Cases {
		for _, b := range r.bundles {
			last, missing := r.missing(b, c)
			for n := range missing {
				all = append(all, job{b, Trial{Case: c, Target: b.target, Variant: b.variant, Run: last + n + 1}})
			}
		}
	}
	return all
}

// missing is how many runs of a case are wanted after its last one.
func (r *runner) missing(b *bundle, c Case) (last, wanted int) {
	id := r.identity(b, c)
	passed, failed, broken := 0, 0, 0
	for _, row := range b.Rows() {
		if row.Identity() != id {
			continue
		}
		last = max(last, row.Run)
		switch row.State {
		case results.Passed:
			passed++
		case results.Failed:
			failed++
		default:
			broken++
		}
	}
	have := passed + failed
	if r.options.Again == Failed {
		return last, max(0, b.Repeat-passed)
	}
	if r.options.Again != Errors {
		have += broken // they are taken up by name only
	}
	return last, max(0, b.Repeat-have)
}

func (r *runner) identity(b *bundle, c Case) results.Identity {
	return results.Identity{
		EvalPath: b.EvalPath, Suite: cmp.Or(c.Suite, r.suite.Experiment), TestID: c.ID, Target: b.target.Name, Variant: b.variant.Name,
	}
}

// work runs the jobs, so many at a time.
func (r *runner) work(ctx context.Context) error {
	jobs := r.jobs()
	r.all = len(jobs)
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan job)
	var workers sync.WaitGroup
	for range min(cmp.Or(r.suite.MaxConcurrency, 4), max(1, len(jobs))) {
		workers.Go(func() {
			for j := range next {
				if r.isSpent() { // what runs goes on: it is paid for
					continue
				}
				if err := r.run(working, j); err != nil {
					stop(err)
				}
			}
		})
	}
	for _, j := range jobs {
		select {
		case next <- j:
		case <-working.Done():
		}
	}
	close(next)
	workers.Wait()
	if err := context.Cause(working); err != nil {
		return err
	}
	if r.done < r.all {
		return ErrBudget
	}
	return nil
}

func (r *runner) isSpent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.suite.Budget > 0 && r.spent >= int64(r.suite.Budget)
}

// Left is what is left of the budget of the suite when it is run with these
// options, in micro-dollars; below zero: there is no bound.
func Left(s Suite, o Options) (int64, error) {
	if s.Budget == 0 {
		return -1, nil
	}
	if o.Again == Fresh {
		return int64(s.Budget), nil
	}
	r := &runner{suite: s, options: o}
	if err := r.open(); err != nil {
		return 0, err
	}
	return max(0, int64(s.Budget)-r.spent), nil
}

// run runs one trial and keeps what came of it. What ctx interrupts is not kept.
func (r *runner) run(ctx context.Context, j job) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	began := r.options.Now()
	out, err := r.options.Reviewer.Review(ctx, j.Trial)
	if ctx.Err() != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		j.Lost += out.Review.CostMicros
		return context.Cause(ctx)
	}
	took := r.options.Now().Sub(began)
	row, grading, kept := r.judge(j, out, err)
	kept.Timing = timing{Started: began.UTC(), ElapsedMS: took.Milliseconds()}
	if err := j.Add(row, kept); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spent += out.Review.CostMicros
	r.done++
	if r.options.Heard != nil {
		r.options.Heard(Progress{Done: r.done, All: r.all, Row: row, Grading: grading, Took: took, Dir: j.Dir})
	}
	return nil
}

// judge makes the row of a trial and what is kept beside it.
func (r *runner) judge(j job, out Outcome, failed error) (results.Row, Grading, results.Sidecars) {
	id := r.identity(j.bundle, j.Case)
	row := results.Row{
		Experiment: j.Experiment, Timestamp: j.Timestamp, Target: id.Target, EvalPath: id.EvalPath, Suite: id.Suite, TestID: id.TestID, Run: j.Run,
		Display: map[string]string{"title": j.Case.ID, "kind": j.Case.Kind, "language": j.Case.Language()},
	}
	if id.Variant != "" {
		row.Variant = &id.Variant
	}
	kept := results.Sidecars{Case: caseFile{
		ID: j.Case.ID, Kind: j.Case.Kind, Fixture: j.Case.Fixture, Repo: j.Case.Repo, Goal: j.Case.Goal, Diff: string(j.Case.Patch), Grader: j.Case.Grader,
	}, Transcript: out.Transcript}
	review := out.Review
	if review.ID != "" {
		kept.Outcome = review
		kept.Metrics = metrics{CostMicros: review.CostMicros, AgentCalls: review.AgentCalls, Agents: review.Agents, Claims: len(review.Findings)}
		kept.Debt = debtOf(review)
		kept.Outputs = outputs(review)
	}
	if row.Cause = broken(review, failed); row.Cause != "" {
		row.State = results.InfraError
		return row, Grading{}, kept
	}
	grading := j.Case.Grader.Grade(review.Open(), j.Case.Language())
	kept.Grading = grading
	row.State = results.Failed
	if grading.Passed {
		row.State = results.Passed
	}
	row.Display["result"] = fmt.Sprintf("%d found, %d missed, %d false", len(grading.Matches), len(grading.Missed), len(grading.False))
	return row, grading, kept
}

// broken is why a review says nothing of its target; empty: it does.
func broken(r report.Review, failed error) string {
	switch {
	case failed != nil:
		return failed.Error()
	case r.State == report.ReviewCompleted && len(r.Gaps) == 0:
		return ""
	case len(r.Gaps) > 0:
		return fmt.Sprintf("%s %s: %s", r.Gaps[0].Agent, r.Gaps[0].State, r.Gaps[0].Reason)
	}
	return cmp.Or(r.Cause, "the review ended as "+string(r.State))
}

// The files beside a row.
type (
	caseFile struct {
		ID      string       `json:"id"`
		Kind    string       `json:"kind"`
		Fixture string       `json:"fixture,omitempty"`
		Repo    string       `json:"repo,omitempty"`
		Goal    string       `json:"goal,omitempty"`
		Diff    string       `json:"diff"`
		Grader  FindingMatch `json:"grader"`
	}
	metrics struct {
		CostMicros int64 `json:"cost_micros"`
		AgentCalls int   `json:"agent_calls"`
		Agents     int   `json:"agents"`
		Claims     int   `json:"claims"` // of all agents, before anybody tried to refute them
	}
	timing struct {
		Started   time.Time `json:"started"`
		ElapsedMS int64     `json:"elapsed_ms"`
	}
	debtFile struct {
		Below    []finding.Entry     `json:"below"` // claims that nobody refuted and that do not count
		Gaps     []report.Gap        `json:"gaps"`
		Todos    []report.ReviewTodo `json:"todos"`
		Untested []string            `json:"untested"`
	}
)

// debtOf is what a review leaves undone.
func debtOf(r report.Review) debtFile {
	d := debtFile{Gaps: r.Gaps, Todos: r.Todos, Untested: r.Untested}
	for _, e := range r.Findings {
		if e.State.Live() && e.Verdict != finding.Rejected && !e.Counts(finding.Severity(r.Severity), r.Confidence) {
			d.Below = append(d.Below, e)
		}
	}
	return d
}

// outputs are the pages of a review.
func outputs(r report.Review) map[string][]byte {
	files := map[string][]byte{"review.md": []byte(report.ReviewMarkdown(r))}
	if sarif, err := report.ReviewSARIF(r); err == nil {
		files["review.sarif"] = sarif
	}
	return files
}

// String names a trial on one line.
func (t Trial) String() string {
	text := t.Case.ID + " · " + t.Target.Name
	if t.Variant.Name != "" {
		text += " · " + t.Variant.Name
	}
	if t.Run > 1 {
		text += " · run " + strconv.Itoa(t.Run)
	}
	return text
}

// where is the folder of a bundle as people are told of it.
func where(root, dir string) string {
	if rel, err := filepath.Rel(root, dir); err == nil {
		return rel
	}
	return dir
}
