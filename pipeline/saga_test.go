package pipeline

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
	"github.com/slipway-dev/slipway/queue"
)

// A saga is a build without git and agents: dice say how issues end, what lands
// and what the Replanner answers. Everything else is the engine's own: the
// conductor decides, the journal records, the fold is the state.
//
// The dice are thrown per name, not in turn: what happens to an issue does not
// depend on when it happens.
type saga struct {
	seed  uint64
	plan  []graph.Issue
	conf  config.Repo
	odds  odds
	turns *rand.Rand // who is next; nil: the first by key, and nothing in between

	log      steptest.Log
	segments int // one more than resumes
	rounds   int // of fixes, in each segment

	// Of the present process.
	fold    *Fold
	journal *step.Journal
	watch   *watch
	now     *running
	tasks   []task
	depth   int   // of tasks in the middle of others
	left    int   // appends until the process dies; below zero: never
	dead    error // what killed it
}

// odds are in percent.
type odds struct {
	fail, split, debt, reject int
	wild                      int // decisions that are not valid
}

// task is a lane, landing or replan that was launched and has not ended.
type task struct {
	key string
	fn  func(context.Context) error
}

var errKilled = errors.New("kill -9")

// cast draws a saga.
func cast(t *rapid.T) *saga {
	percent := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	s := &saga{
		conf: config.Defaults(), left: -1, watch: newWatch(),
		odds: odds{fail: percent("fail", 60), split: percent("split", 40), debt: percent("debt", 40), reject: percent("reject", 40), wild: percent("wild", 60)},
	}
	n, density := rapid.SampledFrom([]int{2, 3, 3, 4, 4, 5, 5, 6, 8, 12}).Draw(t, "issues"), percent("density", 60)
	s.conf.Limits.MaxParallelIssues = rapid.IntRange(1, 4).Draw(t, "max_parallel_issues")
	s.conf.Pipeline.MaxSplits = rapid.IntRange(0, 4).Draw(t, "max_splits")
	s.conf.Pipeline.MaxReplans = rapid.IntRange(0, 3).Draw(t, "max_replans")
	s.conf.Pipeline.Barrier = rapid.SampledFrom([]string{"none", "level"}).Draw(t, "barrier")
	s.conf.Pipeline.EnableReplanning = rapid.IntRange(0, 4).Draw(t, "enable_replanning") > 0
	s.rounds = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "fixes")
	s.segments = rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "segments")
	s.seed = rapid.Uint64().Draw(t, "seed")
	d := s.dice("plan")
	for i := range n {
		is := issue(fmt.Sprintf("i%d", i), []string{fmt.Sprintf("f%d", d.IntN(4))})
		is.AcceptanceCriteria = append(is.AcceptanceCriteria[:0], graph.Criterion{Text: "c", PRDIDs: []string{fmt.Sprintf("ac-%d", 1+d.IntN(2))}})
		for k := range i {
			if d.IntN(100) < density {
				is.DependsOn = append(is.DependsOn, fmt.Sprintf("i%d", k))
			}
		}
		s.plan = append(s.plan, is)
	}
	return s
}

// dice are for one name.
func (s *saga) dice(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

// claim begins a process: its fold is made of the journal alone.
func (s *saga) claim(t *testing.T) {
	s.fold, s.tasks, s.depth, s.dead = NewFold(), nil, 0, nil
	s.log.Refuse = s.refuse
	opening := true
	s.journal = s.log.Open(t, step.Options{Recorded: func(e step.Entry) {
		s.fold.Add(e)
		if !opening {
			s.watch.see(s, e)
		}
	}})
	opening = false
	s.now = &running{keys: map[string]bool{}, broke: map[string]bool{}}
	s.now.launch = func(key string, fn func(context.Context) error) {
		if !s.now.keys[key] {
			s.now.keys[key] = true
			s.tasks = append(s.tasks, task{key, fn})
		}
	}
}

func (s *saga) refuse(context.Context, queue.Entry) error {
	if s.left == 0 {
		s.dead = errKilled
	}
	s.left--
	return s.dead
}

func (s *saga) conductor() *conductor {
	return &conductor{fold: s.fold, journal: s.journal, conf: s.conf, hands: s, log: slog.New(slog.DiscardHandler)}
}

// live takes the build to its end in this process, like Engine.Run does.
func (s *saga) live(ctx context.Context, execute func(context.Context) error) error {
	_, err := step.Choose(ctx, s.journal, keyBegin, begun{Build: "b-1", Repo: "local/r", Title: "The thing"})
	err = errors.Join(err, record(ctx, s, keyPin, pinned{Base: "main", BaseSHA: "base"}))
	prd := plan.PRD{Title: "The thing", AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "a", MustHave: true}, {ID: "ac-2", Text: "b"}}}
	err = errors.Join(err, record(ctx, s, keyPlan, plan.Result{PRD: prd, Issues: s.plan}))
	for err == nil {
		switch {
		case !s.fold.isDone():
			if err = s.segment(ctx, execute); err == nil {
				err = record(ctx, s, s.fold.key(keyDone), ended{State: report.SucceededWithDebt})
			}
		case s.fold.segment < s.segments:
			_, err = step.Choose(ctx, s.journal, s.fold.nextSegment(keyResume), resumed{Signal: fmt.Sprintf("s-%d", s.fold.segment)})
		default:
			return nil
		}
	}
	return err
}

// record is an effect that does nothing but say so.
func record[T any](ctx context.Context, s *saga, key string, value T) error {
	_, err := step.Effect(ctx, s.journal, key, func(context.Context) (T, error) { return value, nil })
	return err
}

// segment executes, verifies and fixes, as build.rounds does.
func (s *saga) segment(ctx context.Context, execute func(context.Context) error) error {
	for {
		if err := execute(ctx); err != nil {
			return err
		}
		n := s.fold.round()
		if !s.fold.isVerified() && !s.fold.isJudged(n) {
			key := s.fold.key(keyVerify(n))
			v := verified{Final: n > s.rounds || s.fold.stopping() != nil, Debt: []debt.Item{{
				Type: debt.UnmetCriterion, Severity: debt.High, Criterion: "ac-1", Justification: "seen in " + key,
			}}}
			if err := record(ctx, s, keySettled(key), v); err != nil {
				return err
			}
		}
		if s.fold.isVerified() {
			return nil
		}
		if err := record(ctx, s, s.fold.key(keyFix(n)), s.mend(n)); err != nil {
			return err
		}
	}
}

// execute is the conductor's run with one task at a time, in an order that the
// dice decide.
func (s *saga) execute(ctx context.Context) error {
	for {
		if err := s.conductor().decide(ctx, s.now); err != nil {
			return err
		}
		if len(s.tasks) == 0 {
			return nil
		}
		if err := s.turn(ctx); err != nil {
			return err
		}
	}
}

// turn runs one task to its end.
func (s *saga) turn(ctx context.Context) error {
	i := 0
	if s.turns != nil {
		i = s.turns.IntN(len(s.tasks))
	} else {
		for k, one := range s.tasks {
			if one.key > s.tasks[i].key {
				i = k
			}
		}
	}
	one := s.tasks[i]
	s.tasks = slices.Delete(s.tasks, i, i+1)
	err := one.fn(ctx)
	delete(s.now.keys, one.key)
	return errors.Join(err, s.watch.wrong)
}

// meanwhile lets others go on in the middle of a task.
func (s *saga) meanwhile(ctx context.Context) error {
	if s.turns == nil || s.depth > 2 {
		return nil
	}
	s.depth++
	defer func() { s.depth-- }()
	for range s.turns.IntN(4) {
		if len(s.tasks) == 0 {
			return nil
		}
		if err := s.turn(ctx); err != nil {
			return err
		}
		if err := s.conductor().decide(ctx, s.now); err != nil {
			return err
		}
	}
	return nil
}

// code ends an issue as the dice say.
func (s *saga) code(ctx context.Context, is graph.Issue) error {
	s.watch.codes(s.fold, is)
	key := s.fold.key(is.Slug())
	d := s.dice(key)
	r := coding.Result{Outcome: report.Completed, Commit: "c-" + key, Changed: true, Summary: "did it"}
	owed := debt.Item{Type: debt.MissingFeature, Severity: debt.Low, IssueName: is.Name, Justification: "left out in " + key}
	switch roll := d.IntN(100); {
	case roll < s.odds.fail:
		r.Outcome, r.Cause = report.FailedEscalated, "escalated in "+key
		if d.IntN(2) == 0 {
			r.Outcome = report.FailedUnrecoverable
		}
	case roll < s.odds.fail+s.odds.split:
		r.Outcome, r.Cause, r.SubIssues, r.Debt = report.FailedNeedsSplit, "too large in "+key, s.parts(d, is), []debt.Item{owed}
	case roll < s.odds.fail+s.odds.split+s.odds.debt:
		r.Outcome, r.Debt = report.CompletedWithDebt, []debt.Item{owed}
	}
	return record(ctx, s, s.fold.key(keyKept(is.Key())), kept{Name: is.Name, Result: r, Ref: "refs/" + key})
}

// land lets in what the dice do not reject.
func (s *saga) land(ctx context.Context) error {
	key, choice, _ := s.fold.opened()
	key = s.fold.key(key)
	out := advanced{Head: choice.Base}
	for _, name := range choice.Issues {
		d := s.dice(key + "/" + name)
		if d.IntN(100) < s.odds.reject {
			out.Rejected = append(out.Rejected, rejected{Name: name, Cause: "red in " + key})
			continue
		}
		out.Head = "m-" + name
		l := landed{Name: name, Merge: out.Head}
		if d.IntN(100) < s.odds.debt {
			l.Debt = []debt.Item{{Type: debt.UnverifiedCriteria, Severity: debt.Medium, IssueName: name, Justification: "untested in " + key}}
		}
		out.Landed = append(out.Landed, l)
	}
	if err := s.meanwhile(ctx); err != nil {
		return err
	}
	err := record(ctx, s, keyAdvanced(key), out)
	return errors.Join(err, s.checkpoint(key))
}

// checkpoint writes the state document now and then, so that what is kept of it
// is old the next time.
func (s *saga) checkpoint(key string) error {
	if s.dice("checkpoint "+key).IntN(3) > 0 {
		return nil
	}
	_, err := s.fold.document()
	return err
}

// replan asks twice, as the Replanner is: an answer that cannot be carried out
// may be repaired once.
func (s *saga) replan(ctx context.Context) error {
	key, failures, asked := s.fold.replanning()
	key = s.fold.key(key)
	out := replanned{Failed: failures, Decision: ReplanDecision{Action: Continue}, Note: "nobody was asked"}
	for try := 0; asked && try <= Replanner.Repairs; try++ {
		d := s.propose(fmt.Sprintf("%s/%d", key, try), failures)
		bad := checkReplan(Setback{check: s.fold.impossible}, d)
		s.watch.proposed(s.fold, bad)
		if len(bad) == 0 {
			out.Decision, out.Note = d, ""
			break
		}
	}
	if err := s.meanwhile(ctx); err != nil {
		return err
	}
	err := record(ctx, s, keySettled(key), out)
	return errors.Join(err, s.checkpoint(key))
}

// story is the journal, for a failure's message.
func (s *saga) story() string {
	entries, err := s.log.Entries(context.Background(), "job", 0)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %s\n", e.Key, e.Outcome)
	}
	return b.String()
}
