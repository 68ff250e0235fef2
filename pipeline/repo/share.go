package repo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// A Share keeps the refs below one prefix on a remote too, so that whoever takes
// the work up on another machine finds the commits. The refs are one writer's at
// a time: one that somebody else has moved since stays where it is.
type Share struct {
	mirror *Mirror
	prefix string

	mu   sync.Mutex
	seen map[string]string // ref → commit on the remote; nil: not looked yet
}

// Share is about the refs below prefix, which is below refs/slipway/.
func (m *Mirror) Share(prefix string) *Share {
	return &Share{mirror: m, prefix: strings.TrimSuffix(prefix, "/") + "/"}
}

// Push makes the remote have what is here. Callers that come while a push runs
// wait for it, and have nothing left to do if it took their refs along. A ref
// that another writer has moved is ErrMoved. open is asked for the remote where
// there is something to push.
func (s *Share) Push(ctx context.Context, open func(context.Context) (Remote, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	here, err := s.mirror.Refs(ctx, s.prefix)
	if err != nil {
		return err
	}
	if s.moved(here) == nil {
		return nil
	}
	r, err := open(ctx)
	if err != nil {
		return err
	}
	if s.seen == nil {
		if s.seen, err = s.mirror.remoteRefs(ctx, r, s.prefix); err != nil {
			return err
		}
	}
	moved := s.moved(here)
	if moved == nil {
		return nil
	}
	if pushed := s.push(ctx, r, moved); pushed != nil {
		return s.explain(ctx, r, moved, pushed)
	}
	for _, ref := range moved {
		s.seen[ref.Name] = ref.Commit
	}
	return nil
}

// moved are the refs that the remote does not have as they are here.
func (s *Share) moved(here []Ref) []Ref {
	var out []Ref
	for _, ref := range here {
		if s.seen[ref.Name] != ref.Commit {
			out = append(out, ref)
		}
	}
	return out
}

func (s *Share) push(ctx context.Context, r Remote, moved []Ref) error {
	args := []string{
		"push", "--porcelain", "--quiet", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no",
	}
	var specs []string
	for _, ref := range moved {
		args = append(args, "--force-with-lease="+ref.Name+":"+s.seen[ref.Name])
		specs = append(specs, ref.Commit+":"+ref.Name)
	}
	_, err := s.mirror.remote(ctx, r, append(append(args, "--end-of-options", r.URL), specs...)...)
	return err
}

// explain looks how the remote is after a push that failed: it may have come
// through, or somebody else was there first.
func (s *Share) explain(ctx context.Context, r Remote, moved []Ref, failed error) error {
	now, err := s.mirror.remoteRefs(ctx, r, s.prefix)
	if err != nil {
		return fmt.Errorf("push %s* to %s: %w", s.prefix, r, errors.Join(failed, err))
	}
	missing := false
	for _, ref := range moved {
		switch now[ref.Name] {
		case ref.Commit:
			s.seen[ref.Name] = ref.Commit
		case s.seen[ref.Name]:
			missing = true
		default:
			return fmt.Errorf("push %s to %s: it is at %s, not at %s: %w",
				ref.Name, r, short(now[ref.Name]), short(s.seen[ref.Name]), ErrMoved)
		}
	}
	if missing {
		return fmt.Errorf("push %s* to %s: %w", s.prefix, r, failed)
	}
	return nil
}

// Fetch brings what the remote has, over what is here.
func (s *Share) Fetch(ctx context.Context, r Remote) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	there, err := s.mirror.remoteRefs(ctx, r, s.prefix)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		unlock, err := s.mirror.lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		_, err = s.mirror.remote(ctx, r, "fetch", "--quiet", "--force", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
			"--no-auto-maintenance", "--end-of-options", r.URL, "+"+s.prefix+"*:"+s.prefix+"*")
		if err != nil {
			return fmt.Errorf("fetch %s* of %s: %w", s.prefix, r, err)
		}
	}
	s.seen = there
	return nil
}

// Remove takes the refs off the remote; those here stay.
func (s *Share) Remove(ctx context.Context, r Remote) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	there, err := s.mirror.remoteRefs(ctx, r, s.prefix)
	if err != nil || len(there) == 0 {
		return err
	}
	args := []string{"push", "--porcelain", "--quiet", "--no-verify", "--no-signed", "--end-of-options", r.URL}
	for name := range there {
		args = append(args, ":"+name)
	}
	if _, err := s.mirror.remote(ctx, r, args...); err != nil {
		return fmt.Errorf("remove %s* from %s: %w", s.prefix, r, err)
	}
	s.seen = map[string]string{}
	return nil
}

// remoteRefs are the refs of a remote below prefix, with their commits.
func (m *Mirror) remoteRefs(ctx context.Context, r Remote, prefix string) (map[string]string, error) {
	out, err := m.remote(ctx, r, "ls-remote", "--end-of-options", r.URL, prefix+"*")
	if err != nil {
		return nil, fmt.Errorf("list %s* of %s: %w", prefix, r, err)
	}
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		hash, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if ok && strings.HasPrefix(name, prefix) && checkHash(hash) == nil && checkRef(name) == nil {
			refs[name] = hash
		}
	}
	return refs, nil
}
