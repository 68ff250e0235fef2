package pipeline

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/report"
)

// minHash is how many digits of a plan's hash name it.
const minHash = 7

// Approval says why an approval of that hash cannot be taken, in words for the
// person who gave it, or nothing. It is refused when it names no plan, another
// plan than the one that was shown, or one whose ticket or base moved since.
func (e *Engine) Approval(ctx context.Context, from Journals, f Forge, req Request, hash string) (refusal string, err error) {
	b, err := Read(ctx, from, req.Build)
	if err != nil {
		return "", err
	}
	if len(b.Permits) > 0 {
		return permitRefusal(b, ApproveSignal, hash), nil
	}
	if b.Gate != nil && b.Gate.Kind == report.ChoiceGate {
		_, refusal := report.Chosen(b.Contenders, hash)
		return refusal, nil
	}
	if b.Gate == nil || b.Gate.Kind != report.PlanGate {
		return "no plan of this build waits for an approval", nil
	}
	short := b.Gate.Hash[:min(12, len(b.Gate.Hash))]
	hash = strings.ToLower(strings.TrimSpace(hash))
	switch {
	case hash == "":
		return fmt.Sprintf("an approval names the plan that was read: approve %s", short), nil
	case len(hash) < minHash || !strings.HasPrefix(b.Gate.Hash, hash):
		return fmt.Sprintf("the plan that waits has the hash %s, not %s", short, hash), nil
	}
	return e.stale(ctx, f, req, b.Base, b.BaseSHA)
}

// stale says what moved since a plan was made: its ticket, or the base that it
// was made for.
func (e *Engine) stale(ctx context.Context, f Forge, req Request, base, sha string) (refusal string, err error) {
	ticket, err := f.Ticket(ctx)
	if err != nil {
		return "", fmt.Errorf("read the ticket again: %w", err)
	}
	if ticket.Title != req.Ticket.Title || ticket.Body != req.Ticket.Body {
		return "the ticket was changed since the plan was made, so nobody approved this plan for it: cancel the build and start another", nil
	}
	mirror, err := e.Mirror(ctx, req.Repo)
	if err != nil {
		return "", err
	}
	cred, err := f.Credential(ctx)
	if err != nil {
		return "", fmt.Errorf("get a credential for git: %w", err)
	}
	head, err := mirror.RemoteHead(ctx, remoteOf(cred), base)
	if err != nil {
		return "", fmt.Errorf("look where %s is now: %w", base, err)
	}
	if head != sha {
		return fmt.Sprintf("%s moved since the plan was made, from %.10s to %.10s: cancel the build and start another", base, sha, head), nil
	}
	return "", nil
}

// Waiting is a build that waits for a person or for CI and holds no worker: it
// goes on when a signal comes, or at Until.
type Waiting struct {
	State report.State
	Until time.Time // zero: when a signal comes
}

// Error says what the build waits for.
func (w *Waiting) Error() string { return "the build is " + string(w.State) }
