package repo

import (
	"context"
	"errors"
	"testing"
)

func TestShareBringsRefsToAnotherMachine(t *testing.T) {
	ctx := t.Context()
	s := newServer(t)
	open := func(context.Context) (Remote, error) { return s.remote, nil }
	here, there := onlyMirror(t), onlyMirror(t)
	base, err := here.Fetch(ctx, s.remote, "")
	must(t, err)
	tree, err := here.Tree(ctx, base)
	must(t, err)
	commit := func(m *Mirror, message string) string {
		t.Helper()
		c, err := m.CommitTree(ctx, tree, []string{base}, Commit{Message: message, Author: Person{Name: "a", Email: "a@example.com"}})
		must(t, err)
		return c
	}
	one, two, three := commit(here, "one"), commit(here, "two"), commit(here, "three")
	const prefix = "refs/slipway/b-1"
	must(t, here.SetRef(ctx, prefix+"/integration", one, Any))
	must(t, here.SetRef(ctx, "refs/slipway/b-10/integration", three, Any))
	mine := here.Share(prefix)
	must(t, mine.Push(ctx, open))
	s.mu.Lock()
	asked := s.asked
	s.mu.Unlock()
	must(t, mine.Push(ctx, open))
	s.mu.Lock()
	if s.asked != asked {
		t.Error("nothing had moved, and the remote was asked")
	}
	s.mu.Unlock()
	must(t, here.SetRef(ctx, prefix+"/integration", two, Any)) // no descendant of the first
	must(t, here.SetRef(ctx, prefix+"/work/x", one, Any))
	must(t, mine.Push(ctx, open))

	theirs := there.Share(prefix)
	must(t, theirs.Fetch(ctx, s.remote))
	refs, err := there.Refs(ctx, "refs/slipway")
	must(t, err)
	if len(refs) != 2 || refs[0] != (Ref{prefix + "/integration", two}) || refs[1] != (Ref{prefix + "/work/x", one}) {
		t.Errorf("there are %+v", refs)
	}

	// The machine that lost the build wakes up and pushes what it had.
	next := commit(there, "four")
	must(t, there.SetRef(ctx, prefix+"/integration", next, Any))
	must(t, theirs.Push(ctx, open))
	must(t, here.SetRef(ctx, prefix+"/integration", three, Any))
	if err := mine.Push(ctx, open); !errors.Is(err, ErrMoved) {
		t.Errorf("Push of a stale view = %v, want ErrMoved", err)
	}
	must(t, mine.Fetch(ctx, s.remote))
	if got, err := here.Ref(ctx, prefix+"/integration"); err != nil || got != next {
		t.Errorf("after Fetch integration is at %s, %v; want %s", got, err, next)
	}

	must(t, theirs.Remove(ctx, s.remote))
	if left, err := there.remoteRefs(ctx, s.remote, "refs/slipway/"); err != nil || len(left) != 0 {
		t.Errorf("left on the remote: %v, %v", left, err)
	}
	if at, err := there.Ref(ctx, prefix+"/integration"); err != nil || at != next {
		t.Errorf("here it is at %s, %v", at, err)
	}
}

// The answer to a push can be lost though the push came through.
func TestSharePushThatCameThrough(t *testing.T) {
	ctx := t.Context()
	s := newServer(t)
	m := onlyMirror(t)
	base, err := m.Fetch(ctx, s.remote, "")
	must(t, err)
	must(t, m.SetRef(ctx, "refs/slipway/b-1/integration", base, Any))
	share := m.Share("refs/slipway/b-1/")
	share.seen = map[string]string{}                                      // as it was before a push
	userGit(t, s.dir, "update-ref", "refs/slipway/b-1/integration", base) // which came through
	must(t, share.Push(ctx, func(context.Context) (Remote, error) { return s.remote, nil }))
	gone := errors.New("no credential")
	must(t, share.Push(ctx, func(context.Context) (Remote, error) { return Remote{}, gone }))
	must(t, m.SetRef(ctx, "refs/slipway/b-1/more", base, Any))
	if err := share.Push(ctx, func(context.Context) (Remote, error) { return Remote{}, gone }); !errors.Is(err, gone) {
		t.Errorf("Push without a credential = %v", err)
	}
}
