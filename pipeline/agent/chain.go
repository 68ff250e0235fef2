package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// An ending is how a call ended that may be recorded.
type ending struct {
	result  runtime.Result // with what every try cost and used
	failure string         // why there is no answer; empty when there is one
	target  int            // the one that was asked last
	digest  string         // of what it was asked
}

// A lapse is a target that failed the call for good.
type lapse struct {
	class  runtime.Class
	reason string
}

func (l *lapse) Error() string { return l.reason }

// descend asks the targets of chain in turn, from the one numbered first on and
// around: the next one only where the one before cannot be had, since it refuses
// every call or its tries are used up. A call that is refused is its own
// failure, which another model does not mend. Where none can be had, all that
// refuse every call are fatal; else the call has failed, and a later one may
// find a target well again.
func (c *Crew) descend(ctx context.Context, chain []Target, q query, call runtime.Call, held *hold, said *transcript) (end ending, err error) {
	var reasons []string
	fatal := true
	for i := range chain {
		end.target = (q.first + i) % len(chain)
		target := chain[end.target]
		call.Model, call.Effort = target.Model, target.Effort
		if end.digest, err = q.asked.of(target).digest(); err != nil {
			return end, err
		}
		call.Digest = end.digest
		end.result, err = c.try(ctx, target, call, held, said, end.result)
		lapsed, ok := errors.AsType[*lapse](err)
		switch {
		case !ok:
			return end, err
		case lapsed.class == runtime.Refused:
			end.failure = lapsed.reason
			return end, nil
		}
		fatal = fatal && lapsed.class == runtime.Fatal
		reason := lapsed.reason
		if len(chain) > 1 {
			reason = target.String() + ": " + reason
		}
		reasons = append(reasons, reason)
		if i+1 == len(chain) {
			break
		}
		if err := c.isDraining(); err != nil {
			return end, err
		}
		next := chain[(end.target+1)%len(chain)]
		said.note(fmt.Sprintf("%s; falling back to %s", reason, next))
		c.Log.WarnContext(ctx, "agent call failed for good, falling back", "key", call.Step, "reason", reason, "fallback", next.String())
		call.Session = "" // it was the other one's
	}
	end.failure = strings.Join(reasons, "; ")
	if fatal {
		return end, fmt.Errorf("%w: %s", ErrFatal, end.failure)
	}
	return end, nil
}

// String is the target as configuration spells it.
func (t Target) String() string {
	s := t.Name + ":" + t.Model
	if t.Effort != "" {
		s += "@" + t.Effort
	}
	return s
}

// isDraining refuses a new start where the process is about to stop.
func (c *Crew) isDraining() error {
	select {
	case <-c.Draining:
		return ErrDraining
	default:
		return nil
	}
}
