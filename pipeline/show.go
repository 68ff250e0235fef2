package pipeline

import (
	"context"
	"errors"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// show opens the pull request of what was pushed, and says in a check what the
// build came to once nothing moves any more: neither checks nor people.
func (b *build) show(ctx context.Context) error {
	if !b.Request.follows() || b.fold.changed() { // else what it says is as it was
		if err := b.describe(ctx, keyPull); err != nil {
			return err
		}
	}
	if err := b.converge(ctx); err != nil && !errors.Is(err, errNothing) {
		return err
	}
	if b.account().State != b.fold.pullState() { // it stopped since, for its checks or for a person
		if err := b.describe(ctx, keyPullEnd); err != nil {
			return err
		}
	}
	return b.check(ctx)
}

// converge returns when the pushed head is the one that was verified and
// described, its checks are judged, and the branch holds nothing else. errNothing
// says that it holds what conflicts, and that is how the build ends.
func (b *build) converge(ctx context.Context) error {
	for {
		if err := b.again(ctx); err != nil {
			return err
		}
		shown := b.fold.integrated()
		if err := b.ci(ctx); err != nil {
			return err
		}
		if err := b.catchUp(ctx); err != nil || b.fold.integrated() == shown {
			return err
		}
	}
}

// again publishes a head that moved after the pull request was opened: it is
// pushed, verified, and described anew. What of that was done stays as it is.
func (b *build) again(ctx context.Context) error {
	if head, at := b.fold.integrated(), b.fold.checksNow(); head != at.sha {
		err := b.ciSay(ctx, keyCILeft(at.sha), at, forge.Check{ // nobody comes back to that commit
			Status: "completed", Conclusion: "neutral", Title: "A later commit takes its place",
			Summary: "Slipway goes on with " + head + ".",
		})
		if err != nil {
			return err
		}
		if err := b.pushAs(ctx, keyCIPush(head)); err != nil {
			return err
		}
	}
	head := b.fold.integrated() // with what people pushed meanwhile
	first, _, err := step.Get[pushed](b.journal, b.fold.key(keyPush))
	if err != nil || first.Head == head {
		return err
	}
	if n := b.fold.round(); !b.fold.isJudged(n) {
		v, err := b.verify(ctx, n)
		if err != nil {
			return err
		}
		if err := b.judge(ctx, n, v); err != nil {
			return err
		}
	}
	return b.describe(ctx, keyCIPull(head))
}

// describe opens or rewrites the pull request.
func (b *build) describe(ctx context.Context, key string) error {
	text, err := b.words(ctx, b.account())
	if err != nil {
		return err
	}
	return b.draft(ctx, key, text)
}

// catchUp takes in what other people put on the branch after it was pushed. What
// the build says of itself would otherwise be about a commit that the branch has
// left.
func (b *build) catchUp(ctx context.Context) error {
	r := b.account()
	remote, err := b.remote(ctx)
	if err != nil {
		return err
	}
	seen, err := b.mirror.RemoteHead(ctx, remote, r.Branch)
	if err != nil || seen == "" || seen == r.Head {
		return err
	}
	if b.mirror.Has(ctx, seen) {
		included, err := b.mirror.IsAncestor(ctx, seen, r.Head)
		if err != nil || included {
			return err // somebody took it back to there: that is theirs to decide
		}
	}
	return b.adopt(ctx, r.Branch)
}
