package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// site is where one claim of a build works: a disposable clone for the agents,
// clean checkouts for evidence, and the mirror that holds every commit. A later
// claim gets a new directory, so two claims never share a worktree.
type site struct {
	mirror   *repo.Mirror
	clone    *repo.Clone
	runner   *evidence.Runner
	commands evidence.Commands
	dir      string // of this claim
	homes    string // HOME directories of this build
	build    string
	by       forge.Person
	log      *slog.Logger
	testing  chan struct{} // room for engine commands, of all builds of the process

	settling sync.WaitGroup // of issues that ended

	mu    sync.Mutex
	tests map[string]*bench // by name: one clean checkout each
}

// bench is one checkout in which the engine's commands run, one at a time.
type bench struct {
	mu    sync.Mutex
	setup evidence.SetupState
}

// maxDiff bounds the diffs that go into prompts.
const maxDiff = 60 << 10

func (s *site) integration() string          { return integrationRef(s.build) }
func (s *site) ref(slug string) string       { return "refs/slipway/" + s.build + "/" + slug }
func (s *site) of(is graph.Issue) *issueSite { return &issueSite{site: s, issue: is} }

// integrationRef is the ref of a build's integration branch.
func integrationRef(build string) string { return "refs/slipway/" + build + "/integration" }

// Open names a worktree at a commit; it is made when a call needs it.
func (s *site) Open(name, commit string) coding.Tree {
	return &tree{site: s, name: name, head: commit, ref: s.ref("work/" + name), message: "Work on " + name}
}

// Diff is the text of what head changes, cut where it is too long for a prompt.
func (s *site) Diff(ctx context.Context, base, head string) (string, error) {
	return s.mirror.Diff(ctx, base, head, maxDiff)
}

// issueSite is the site as one issue's loop sees it.
type issueSite struct {
	*site
	issue graph.Issue
}

// Open gives the issue's worktrees commit messages that say what they are for.
func (s *issueSite) Open(name, commit string) coding.Tree {
	return &tree{
		site: s.site, name: name, head: commit, ref: s.ref("work/" + name),
		message: fmt.Sprintf("Issue %02d: %s", s.issue.Number, s.issue.Title),
	}
}

// Test runs the engine's commands on a clean checkout of the commit.
func (s *issueSite) Test(ctx context.Context, commit string) (evidence.Result, error) {
	return s.test(ctx, s.issue.Key(), commit)
}

// test runs the engine's commands on a clean checkout of the commit. Where no
// command is given and none can be found, there is nothing to check out for.
func (s *site) test(ctx context.Context, name, commit string) (evidence.Result, error) {
	if s.commands == (evidence.Commands{}) {
		nothing := evidence.Nothing()
		top, err := s.mirror.Top(ctx, commit)
		if err != nil {
			return evidence.Result{}, err
		}
		if !slices.ContainsFunc(top, func(file string) bool { return slices.Contains(nothing.LookedAt, file) }) {
			return nothing, nil
		}
	}
	b := s.bench(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case s.testing <- struct{}{}:
		defer func() { <-s.testing }()
	case <-ctx.Done():
		return evidence.Result{}, context.Cause(ctx)
	}
	dir := filepath.Join(s.dir, "evidence", name)
	if err := s.mirror.Checkout(ctx, commit, dir); err != nil {
		return evidence.Result{}, err
	}
	home := filepath.Join(s.homes, "engine-"+name)
	result, err := s.runner.Run(ctx, evidence.Checkout{Dir: dir, Home: home}, s.commands, b.setup)
	b.setup = result.Setup
	return result, err
}

func (s *site) bench(name string) *bench {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tests == nil {
		s.tests = map[string]*bench{}
	}
	if s.tests[name] == nil {
		s.tests[name] = &bench{}
	}
	return s.tests[name]
}

// maxPatch bounds the diff that a review takes apart.
const maxPatch = 64 << 20

// reviewSite is the site as a review sees it.
type reviewSite struct{ *site }

// Changed lists the paths that differ.
func (s reviewSite) Changed(ctx context.Context, base, head string) ([]repo.Change, error) {
	return s.mirror.Changed(ctx, base, head)
}

// Patch is the whole diff.
func (s reviewSite) Patch(ctx context.Context, base, head string) (string, error) {
	return s.mirror.Patch(ctx, base, head, maxPatch)
}

// File is the content of a file in a commit.
func (s reviewSite) File(ctx context.Context, commit, path string) ([]byte, error) {
	return s.mirror.File(ctx, commit, path)
}

// Files are the contents of several files in a commit.
func (s reviewSite) Files(ctx context.Context, commit string, paths []string) ([][]byte, error) {
	return s.mirror.Files(ctx, commit, paths)
}

// Desk names a worktree that nobody writes to.
func (s reviewSite) Desk(name, commit string) agent.Workspace { return s.Open(name, commit) }

// settle removes the worktrees and the checkout of an issue that ended. Its
// commits stay in the mirror.
func (s *site) settle(ctx context.Context, issue string) {
	ctx = context.WithoutCancel(ctx)
	names, err := os.ReadDir(filepath.Join(s.dir, "clone", "trees"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.WarnContext(ctx, "cannot list worktrees", "issue", issue, "error", err)
	}
	for _, n := range names {
		if n.Name() == issue || strings.HasPrefix(n.Name(), issue+"-") {
			err = errors.Join(err, s.clone.Remove(ctx, n.Name()))
		}
	}
	err = errors.Join(err, repo.RemoveAll(ctx, filepath.Join(s.dir, "evidence", issue)))
	if err != nil {
		s.log.WarnContext(ctx, "a settled issue left files behind", "issue", issue, "error", err)
	}
}

// close removes everything that this claim made on disk.
func (s *site) close(ctx context.Context) {
	s.settling.Wait()
	ctx = context.WithoutCancel(ctx)
	if err := errors.Join(s.clone.Close(ctx), repo.RemoveAll(ctx, s.dir)); err != nil {
		s.log.WarnContext(ctx, "the build's worktrees could not be removed", "dir", s.dir, "error", err)
	}
}

// hold keeps a commit by a ref.
func (s *site) hold(ctx context.Context, ref, commit string) error {
	return s.mirror.SetRef(ctx, ref, commit, repo.Any)
}

// advance moves the integration branch from old to head. A claim before this one
// may have done so: that is a success too.
func (s *site) advance(ctx context.Context, head, old string) error {
	return s.mirror.SetRef(ctx, s.integration(), head, old)
}

func (s *site) merge(ctx context.Context, ours, theirs string) (repo.Merge, error) {
	return s.mirror.Merge(ctx, ours, theirs)
}

// shared returns the files that both head and branch changed since base.
func (s *site) shared(ctx context.Context, base, head, branch string) ([]string, error) {
	if base == head {
		return nil, nil
	}
	ours, err := s.mirror.Changed(ctx, base, head)
	if err != nil {
		return nil, err
	}
	theirs, err := s.mirror.Changed(ctx, base, branch)
	if err != nil {
		return nil, err
	}
	var both []string
	for _, c := range theirs {
		if slices.ContainsFunc(ours, func(o repo.Change) bool { return o.Path == c.Path }) {
			both = append(both, c.Path)
		}
	}
	return both, nil
}

// unresolved says why a resolution cannot be taken, or nothing.
func (s *site) unresolved(ctx context.Context, commit string, conflicts []string) (string, error) {
	left, err := s.mirror.Markers(ctx, commit, conflicts)
	if err != nil || len(left) == 0 {
		return "", err
	}
	return "conflict markers remain in " + strings.Join(left, ", "), nil
}

func (s *site) treeOf(ctx context.Context, commit string) (string, error) {
	return s.mirror.Tree(ctx, commit)
}

// commit makes a commit in the build's name, with the requester beside it.
func (s *site) commit(ctx context.Context, tree string, parents []string, message string, at time.Time) (string, error) {
	return s.mirror.CommitTree(ctx, tree, parents, s.message(message, at))
}

func (s *site) message(text string, at time.Time) repo.Commit {
	c := repo.Commit{Message: text, Author: author, Time: at}
	if s.by.Login != "" {
		c.CoAuthors = []repo.Person{{Name: s.by.Login, Email: s.by.NoReply()}}
	}
	return c
}

// now is the time of a commit that is made: in a replay, when the recorded one
// was made, so that the same work gives the same commit.
func (s *site) now(ctx context.Context) time.Time {
	if was, ok := step.Retraced(ctx); ok {
		if at, err := s.mirror.Time(ctx, commitOf(was)); err == nil {
			return at
		}
	}
	return time.Now()
}

// commitOf is the commit that an entry tells of, if it does.
func commitOf(e step.Entry) string {
	var made struct {
		Head string `json:"head"`
	}
	if e.Commit == "" && json.Unmarshal(e.Outcome, &made) == nil {
		return made.Head
	}
	return e.Commit
}

// author is who commits: the bot. A person who asked for the build is beside
// it as co-author.
var author = repo.Person{Name: "slipway[bot]", Email: "slipway[bot]@users.noreply.github.com"}

// outputGate bounds what one collected commit may hold.
var outputGate = repo.Limits{Files: 5000, Bytes: 100 << 20}

// tree is one worktree. It is used by one goroutine at a time.
type tree struct {
	site    *site
	name    string
	head    string // newest collected commit
	at      string // the commit that is on disk untouched, empty when unknown
	ref     string
	message string
}

// Dir is where the worktree is, or will be.
func (t *tree) Dir() string { return t.site.clone.Dir(t.name) }

// Head is the newest collected commit.
func (t *tree) Head() string { return t.head }

// Found makes a recorded commit the newest one.
func (t *tree) Found(commit string) { t.head = commit }

// Prepare brings the directory to the newest commit, anew unless it is there.
func (t *tree) Prepare(ctx context.Context) error {
	if t.at == t.head {
		return nil
	}
	if err := t.site.clone.Remove(ctx, t.name); err != nil {
		return err
	}
	if _, err := t.site.clone.Worktree(ctx, t.name, t.head); err != nil {
		return err
	}
	t.at = t.head
	return nil
}

// Collect makes a commit of what is in the directory, through the output gate.
// Nothing changed is the commit that was there.
func (t *tree) Collect(ctx context.Context) (string, error) {
	t.at = "" // until the collected commit is known to be what is on disk
	commit, _, err := t.site.mirror.Collect(ctx, t.Dir(), t.head, t.ref, t.site.message(t.message, t.site.now(ctx)))
	if err == nil {
		err = t.site.mirror.Inspect(ctx, t.head, commit, outputGate)
	}
	if broken, ok := errors.AsType[*repo.Violation](err); ok {
		return "", &agent.Rejected{Reason: broken.Error()}
	}
	if err != nil {
		return "", err
	}
	t.at = commit
	return commit, nil
}
