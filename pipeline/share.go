package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// sharing lets other machines go on with a build: its commits are on the remote,
// below refs/slipway/<build>/, before the journal speaks of them.
type sharing struct {
	share   *repo.Share
	fetched bool  // has has looked at the remote
	failed  error // why it could not
}

func newSharing(b *build) *sharing {
	return &sharing{share: b.mirror.Share("refs/slipway/" + b.Request.Build)}
}

// has reports whether a commit is here, and fetches what another machine made
// before it says no.
func (b *build) has(ctx context.Context, commit string) bool {
	if b.mirror.Has(ctx, commit) {
		return true
	}
	l := b.sharing
	if l == nil || l.fetched {
		return false
	}
	l.fetched = true
	remote, err := b.remote(ctx)
	if err == nil {
		err = l.share.Fetch(ctx, remote)
	}
	l.failed = err
	return b.mirror.Has(ctx, commit)
}

// fetchShared sees to it that what no record of a call names is here too: what the
// build started from, and where it is. It fails where the remote could not be
// asked, lest work that is there be taken for lost.
func (b *build) fetchShared(ctx context.Context) error {
	if b.sharing == nil {
		return nil
	}
	if b.fold.isPinned() {
		for _, commit := range b.fold.pinned().commits() {
			b.has(ctx, commit)
		}
	}
	if head := b.fold.integrated(); head != "" {
		b.has(ctx, head)
	}
	if err := b.sharing.failed; err != nil {
		return fmt.Errorf("fetch what another machine did for the build: %w", err)
	}
	return nil
}

// holdStart keeps what the build starts from: other branches move.
func (b *build) holdStart(ctx context.Context, p pinned) error {
	if b.sharing == nil {
		return nil
	}
	prefix := "refs/slipway/" + b.Request.Build + "/start/"
	for name, commit := range p.commits() {
		if err := b.mirror.SetRef(ctx, prefix+name, commit, repo.Any); err != nil {
			return err
		}
	}
	return nil
}

// commits are those that the build starts from, by what they are to it.
func (p pinned) commits() map[string]string {
	all := map[string]string{"base": p.BaseSHA, "config": p.ConfigSHA, "head": p.Start, "bring": p.Bring}
	maps.DeleteFunc(all, func(_, commit string) bool { return commit == "" })
	return all
}

// shareTime bounds how long a finished step waits for a remote that is away, as
// it waits for a store that is.
const shareTime = 2 * time.Minute

// shareCommits brings the commits to the remote before an entry is recorded.
func (b *build) shareCommits(ctx context.Context, e step.Entry) error {
	if b.sharing == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shareTime)
	defer cancel()
	for wait := time.Second; ; wait = min(2*wait, 15*time.Second) {
		err := b.sharing.share.Push(ctx, b.remote)
		if err == nil || errors.Is(err, repo.ErrMoved) {
			return err
		}
		b.log.WarnContext(ctx, "the build's commits do not reach the remote", "step", e.Key, "error", err)
		if pause(ctx, wait) != nil {
			return err
		}
	}
}

// unshare takes off the remote what nobody needs: all of a build that left nothing
// out, and published.
func (b *build) unshare(ctx context.Context) {
	if b.sharing == nil || b.holds() || b.fold.Report(time.Now()).State != report.Succeeded {
		return
	}
	remote, err := b.remote(ctx)
	if err == nil {
		err = b.sharing.share.Remove(ctx, remote)
	}
	if err != nil {
		b.log.WarnContext(ctx, "the build's refs stay on the remote", "error", err)
	}
}
