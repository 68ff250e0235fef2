package pipeline

import (
	"context"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/repo"
)

// Local is the forge of a build at a terminal: a local repository gets a
// branch, and the report goes to the state directory. There is no pull request,
// check or comment to ensure.
type Local struct {
	noThreads
	Dir    string // the repository, absolute
	Mirror *repo.Mirror
}

// Ticket is the goal, which the request holds already.
func (l Local) Ticket(context.Context) (forge.Ticket, error) { return forge.Ticket{}, nil }

// Credential is the repository's path.
func (l Local) Credential(context.Context) (forge.Credential, error) {
	return forge.Credential{URL: l.Dir}, nil
}

// OwnersFile finds none: a directory has no owner.
func (l Local) OwnersFile(context.Context) ([]byte, error) { return nil, nil }

// EnsureBranch settles the branch: its name holds the build's id, so only a
// person can have taken it.
func (l Local) EnsureBranch(ctx context.Context, name string, ours func(context.Context, forge.Branch) (bool, error)) (forge.Branch, error) {
	b := forge.Branch{Name: name}
	for n := 2; ; n++ {
		var err error
		if b.Head, err = l.Mirror.RemoteHead(ctx, repo.Remote{URL: l.Dir}, b.Name); err != nil || b.Head == "" {
			return b, err
		}
		if mine, err := ours(ctx, b); err != nil || mine {
			return b, err
		}
		b.Name = fmt.Sprintf("%s-%d", name, n)
	}
}

// Pull finds none.
func (l Local) Pull(_ context.Context, number int) (forge.Pull, error) {
	return forge.Pull{}, fmt.Errorf("pull request %d: %s has none", number, l.Dir)
}

// EnsureAnswer has nowhere to write one.
func (l Local) EnsureAnswer(_ context.Context, a forge.Answer) (forge.Answer, error) { return a, nil }

// EnsureDraft has nowhere to open one: the branch is the deliverable.
func (l Local) EnsureDraft(context.Context, forge.Draft) (forge.Pull, error) {
	return forge.Pull{}, nil
}

// EnsureReview has nowhere to post one.
func (l Local) EnsureReview(_ context.Context, r forge.OwnReview) (forge.OwnReview, error) {
	return r, nil
}

// EnsureComment has nowhere to write one: the terminal shows the progress.
func (l Local) EnsureComment(_ context.Context, c forge.Comment) (forge.Comment, error) {
	return c, nil
}

// EnsureCheck has nowhere to hold one.
func (l Local) EnsureCheck(_ context.Context, c forge.Check) (forge.Check, error) { return c, nil }

// Checks finds none.
func (l Local) Checks(context.Context, string) ([]forge.Check, error) { return nil, nil }

// CI finds nothing configured: nobody is told of the branch.
func (l Local) CI(_ context.Context, sha, _ string) (forge.CI, error) { return forge.CI{SHA: sha}, nil }

// Rerun has nothing to run again.
func (l Local) Rerun(context.Context, forge.CIRun) error { return forge.ErrNoRerun }

// CILog has nothing to read.
func (l Local) CILog(context.Context, forge.CIRun) (string, error) { return "", nil }

// Comments finds none.
func (l Local) Comments(context.Context, int, string) (int, error) { return 0, nil }

// LocalReview is the forge of a review at a terminal: what is compared are two
// branches of a local repository, and nothing is written to it.
type LocalReview struct {
	noThreads
	Dir    string // the repository, absolute
	Mirror *repo.Mirror
	Base   string // branch, or a whole ref
	Head   string // likewise; empty is what is checked out
	Inert  bool   // nothing of the change is executed, as of a fork's
}

// Pull is the comparison.
func (l LocalReview) Pull(ctx context.Context, _ int) (forge.Pull, error) {
	remote := repo.Remote{URL: l.Dir}
	p := forge.Pull{State: "open", Base: l.Base, Head: l.Head, Fork: l.Inert}
	var err error
	if p.Head == "" {
		if p.Head, err = l.Mirror.DefaultBranch(ctx, remote); err != nil {
			return p, err
		}
	}
	if p.HeadSHA, err = l.Mirror.Fetch(ctx, remote, p.Head); err != nil {
		return p, err
	}
	p.Ref, p.Title = p.Head, p.Head+" against "+p.Base
	return p, nil
}

// Credential is the repository's path.
func (l LocalReview) Credential(context.Context) (forge.Credential, error) {
	return forge.Credential{URL: l.Dir}, nil
}

// OwnersFile finds none: a directory has no owner.
func (l LocalReview) OwnersFile(context.Context) ([]byte, error) { return nil, nil }

// noThreads is what there is of threads where nobody can remark on anything.
type noThreads struct{}

// AnswerRemark has nothing to answer.
func (noThreads) AnswerRemark(context.Context, string, forge.Answer) error { return nil }

// Conversations finds none.
func (noThreads) Conversations(context.Context, int) ([]forge.Conversation, error) { return nil, nil }

// Resolve has nothing to resolve.
func (noThreads) Resolve(context.Context, forge.Conversation) error { return nil }

// EnsureReview has nowhere to post one.
func (l LocalReview) EnsureReview(_ context.Context, r forge.OwnReview) (forge.OwnReview, error) {
	return r, nil
}

// EnsureComment has nowhere to write one.
func (l LocalReview) EnsureComment(_ context.Context, c forge.Comment) (forge.Comment, error) {
	return c, nil
}

// EnsureCheck has nowhere to hold one.
func (l LocalReview) EnsureCheck(_ context.Context, c forge.Check) (forge.Check, error) {
	return c, nil
}

// React has nothing to react to.
func (l LocalReview) React(context.Context, forge.Subject, string) error { return nil }

// React has nothing to react to.
func (l Local) React(context.Context, forge.Subject, string) error { return nil }
