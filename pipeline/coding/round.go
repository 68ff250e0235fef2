package coding

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/agent"
)

// round is one budget of iterations. A new one starts with nothing spent and
// nothing counted, on the work of those before it.
type round struct {
	*work
	iteration int
	idle      int      // iterations in a row that changed nothing
	said      []string // the feedback of each iteration
	marks     []string // and what tells whether one came back
	ended     string   // why it was not approved
}

// unchanged is the feedback to a Coder who did nothing.
const unchanged = "Nothing was changed. Make the change that the issue asks for."

// maxSame is how often the same feedback may come before the loop is stuck.
const maxSame = 3

func (r *round) key() string { return fmt.Sprintf("%s/iter-%d", r.work.key(), r.iteration) }

func (r *round) place() agent.Place { return agent.Place{Key: r.key(), Work: r.tree} }

// run turns until the work is approved or the round has ended.
func (r *round) run(ctx context.Context) (approved bool, err error) {
	defer func() { r.tried = append(r.tried, Tried{Round: r.rounds, Feedback: r.said, Ended: r.ended}) }()
	for r.iteration = 1; r.iteration <= r.task.MaxIterations; r.iteration++ {
		r.iterations++
		approved, err := r.iterate(ctx)
		if err != nil || approved || r.ended != "" {
			return approved, err
		}
	}
	r.ended = fmt.Sprintf("not approved after %d iterations; last: %s", r.task.MaxIterations, firstLine(r.feedback))
	return false, nil
}

// iterate is one turn of coder and judges.
func (r *round) iterate(ctx context.Context) (approved bool, err error) {
	before := r.tree.Head()
	known := r.task.Background()
	sub, err := agent.Ask(ctx, r.crew, r.place(), Coder, Assignment{
		Issue: r.issue, GivenUp: r.givenUp, Spec: r.task.Spec,
		Notes: known.Notes, Memory: known.Memory.forCoder(r.issue), Steering: known.Steering,
		Round: r.rounds, Iteration: r.iteration, Directions: r.directions, Feedback: r.feedback,
	})
	if r.tree.Head() == before {
		r.idle++
	} else {
		r.idle = 0
	}
	if failure, ok := errors.AsType[*agent.Failure](err); ok {
		r.fail("The previous attempt gave no usable answer: " + failure.Reason)
		return false, r.diagnose(ctx, failure.Reason)
	}
	if err != nil {
		return false, err
	}
	r.last = sub
	switch {
	case !r.changed():
		r.fail(unchanged)
	case !sub.Complete:
		r.fail("You said that the work is not complete: " + sub.Summary + "\nGo on from there.")
	default:
		return r.judge(ctx)
	}
	return false, nil
}

// fail ends an iteration that was not approved, and the round if another one
// would not help.
func (r *round) fail(feedback string) {
	r.feedback = feedback
	r.said = append(r.said, feedback)
	r.marks = append(r.marks, fingerprint(feedback))
	r.ended = r.stuck()
}

// stuck says why another iteration would not help, or nothing.
func (r *round) stuck() string {
	if r.idle >= 2 {
		why := "stuck: two iterations changed nothing"
		if r.feedback != unchanged {
			why += "; last: " + firstLine(r.feedback)
		}
		return why
	}
	same := 0
	for _, m := range r.marks {
		if m == r.marks[len(r.marks)-1] {
			same++
		}
	}
	if same >= maxSame {
		return fmt.Sprintf("stuck: the same feedback came %d times: %s", same, firstLine(r.feedback))
	}
	return ""
}

// diagnose has the Retry Advisor look at a failed call of the Coder before
// another iteration is spent. What it says goes to the Coder; it may end the round.
func (r *round) diagnose(ctx context.Context, reason string) error {
	if r.ended != "" || r.iteration == r.task.MaxIterations {
		return nil // no other iteration would follow
	}
	diff, err := r.diff(ctx)
	if err != nil {
		return err
	}
	advice, err := agent.Ask(ctx, r.crew, r.place(), RetryAdvisor, Breakdown{
		Issue: r.issue, GivenUp: r.givenUp, Spec: r.task.Spec, Reason: reason, Directions: r.directions,
		Earlier: r.said[:len(r.said)-1], Diff: diff,
	})
	if err != nil {
		return err
	}
	r.feedback = advice.words(r.feedback)
	r.said[len(r.said)-1] = r.feedback
	if !advice.ShouldRetry {
		r.ended = "the Retry Advisor sees no use in another attempt: " + firstLine(advice.Diagnosis)
	}
	return nil
}
