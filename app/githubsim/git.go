package githubsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// zeroSHA stands for no commit.
const zeroSHA = "0000000000000000000000000000000000000000"

// gitDir is where a repository's objects are. Names are lower-case on disk, as
// GitHub tells repositories apart.
func (s *Server) gitDir(r *repo) string {
	return filepath.Join(s.dir, "git", strings.ToLower(r.Owner), strings.ToLower(r.Name)+".git")
}

// gitEnv keeps the machine's own configuration out.
func (s *Server) gitEnv(more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
	}, more...)
}

// git runs git in a repository and returns what it printed. A failure carries
// git's own words.
func (s *Server) git(ctx context.Context, r *repo, args ...string) (string, error) {
	return s.gitInput(ctx, r, nil, args...)
}

func (s *Server) gitInput(ctx context.Context, r *repo, stdin io.Reader, args ...string) (string, error) {
	var out, errs bytes.Buffer
	exit, err := sandbox.Host(ctx, sandbox.Command{
		Args: append([]string{"git", "--git-dir=" + s.gitDir(r)}, args...), Dir: s.dir, Env: s.gitEnv(),
		Stdin: stdin, Stdout: &out, Stderr: &errs, Timeout: time.Minute,
	})
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("exit %d: %s", exit.Code, strings.TrimSpace(errs.String()))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return out.String(), nil
}

// preReceive refuses what GitHub refuses an App without the permission. The
// first commit that touches a workflow is enough.
const preReceive = `#!/bin/sh
[ "$SIM_WORKFLOWS" = allow ] && exit 0
while read -r old new ref; do
	[ "$new" = ` + zeroSHA + ` ] && continue
	file=$(git log --format= --name-only "$new" --not --all -- .github/workflows | head -n 1)
	[ -z "$file" ] && continue
	echo "refusing to allow a GitHub App to create or update workflow \` + "`$file\\`" + ` without \` + "`workflows\\`" + ` permission" >&2
	exit 1
done
exit 0
`

// initGit creates the bare repository.
func (s *Server) initGit(ctx context.Context, r *repo) error {
	dir := s.gitDir(r)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the git repository: %w", err)
	}
	if _, err := s.git(ctx, r, "init", "--quiet", "--bare", "--template=", "--initial-branch="+r.DefaultBranch, dir); err != nil {
		return err
	}
	for _, setting := range []string{
		"http.receivepack true", "uploadpack.allowAnySHA1InWant true", "uploadpack.allowFilter true",
		"receive.hideRefs refs/pull", "core.logAllRefUpdates false", "gc.auto 0", "receive.autogc false",
	} {
		name, value, _ := strings.Cut(setting, " ")
		if _, err := s.git(ctx, r, "config", name, value); err != nil {
			return err
		}
	}
	hooks := filepath.Join(dir, "hooks")
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		return fmt.Errorf("create the git repository: %w", err)
	}
	return os.WriteFile(filepath.Join(hooks, "pre-receive"), []byte(preReceive), 0o755)
}

// A treeChange is a commit to make: files to write, and paths to delete.
type treeChange struct {
	branch  string
	parent  string // commit, or empty for the first
	author  pushedAuthor
	message string
	files   map[string]fileBody
	deleted []string
}

type fileBody struct {
	mode string // git's: 100644, 100755 or 120000
	data []byte
}

// makeCommit writes a commit and moves its branch there.
func (s *Server) makeCommit(ctx context.Context, r *repo, change treeChange) error {
	var in bytes.Buffer
	by := fmt.Sprintf("%s <%s> %d +0000", change.author.Name, change.author.Email, s.now().Unix())
	fmt.Fprintf(&in, "commit refs/heads/%s\nauthor %s\ncommitter %s\ndata %d\n%s\n", change.branch, by, by, len(change.message), change.message)
	if change.parent != "" {
		fmt.Fprintf(&in, "from %s\n", change.parent)
	}
	for _, path := range change.deleted {
		fmt.Fprintf(&in, "D %s\n", quotePath(path))
	}
	for path, file := range change.files {
		fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", file.mode, quotePath(path), len(file.data), file.data)
	}
	_, err := s.gitInput(ctx, r, &in, "fast-import", "--quiet", "--force", "--date-format=raw")
	if err != nil {
		return fmt.Errorf("commit to %s: %w", change.branch, err)
	}
	return nil
}

// quotePath writes a path as fast-import reads it.
func quotePath(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

// resolve finds the commit of a branch, tag, full ref or (abbreviated) SHA;
// empty if there is none.
func (s *Server) resolve(ctx context.Context, r *repo, name string) string {
	if name == "" || strings.HasPrefix(name, "-") {
		return ""
	}
	for _, try := range []string{"refs/heads/" + name, "refs/tags/" + name, "refs/" + name, name} {
		if out, err := s.git(ctx, r, "rev-parse", "--verify", "--quiet", "--end-of-options", try+"^{commit}"); err == nil {
			return strings.TrimSpace(out)
		}
	}
	return ""
}

func (s *Server) isAncestor(ctx context.Context, r *repo, old, young string) bool {
	_, err := s.git(ctx, r, "merge-base", "--is-ancestor", old, young)
	return err == nil
}

// A commitInfo is one commit as git tells it.
type commitInfo struct {
	sha, tree, message string
	parents            []string
	author, committer  pushedAuthor
	authored, made     time.Time
}

const commitFormat = "--format=%H%x00%T%x00%P%x00%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI%x00%B%x00%x01"

// commits lists a range in git's own order, newest first.
func (s *Server) commits(ctx context.Context, r *repo, args ...string) ([]commitInfo, error) {
	out, err := s.git(ctx, r, append([]string{"log", commitFormat}, args...)...)
	if err != nil {
		return nil, err
	}
	var all []commitInfo
	for record := range strings.SplitSeq(out, "\x01") {
		f := strings.Split(strings.TrimPrefix(record, "\n"), "\x00")
		if len(f) < 10 {
			continue
		}
		authored, _ := time.Parse(time.RFC3339, f[5]) // git prints what it was asked for
		made, _ := time.Parse(time.RFC3339, f[8])
		all = append(all, commitInfo{
			sha: f[0], tree: f[1], parents: strings.Fields(f[2]),
			author: pushedAuthor{f[3], f[4]}, authored: authored.UTC(),
			committer: pushedAuthor{f[6], f[7]}, made: made.UTC(), message: strings.TrimRight(f[9], "\n"),
		})
	}
	return all, nil
}

// refs are the branches and tags with their objects.
func (s *Server) refs(ctx context.Context, r *repo) (map[string]string, error) {
	out, err := s.git(ctx, r, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.Lines(out) {
		if name, sha, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			refs[name] = sha
		}
	}
	return refs, nil
}

// settle compares git with what was last told, and tells the difference: push
// events, new heads of pull requests, pull requests that a push closed. The
// caller holds mu and commits.
func (s *Server) settle(ctx context.Context, r *repo, by string) error {
	now, err := s.refs(ctx, r)
	if err != nil {
		return err
	}
	before := r.Refs
	r.Refs = now
	var names []string
	for name, sha := range now {
		if before[name] != sha {
			names = append(names, name)
		}
	}
	for name := range before {
		if now[name] == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		r.Pushed = s.now()
		if err := s.emitPush(ctx, r, name, before[name], now[name], by); err != nil {
			return err
		}
	}
	for _, name := range names {
		if branch, ok := strings.CutPrefix(name, "refs/heads/"); ok {
			if err := s.follow(ctx, r, branch, now[name], by); err != nil {
				return err
			}
			if now[name] == "" {
				continue
			}
			if err := s.checkPush(ctx, r, branch, now[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// catchUp settles what a process that was killed left untold.
func (s *Server) catchUp(ctx context.Context) error {
	return s.change(func(st *state) error {
		for _, r := range st.Repos {
			if err := s.settle(ctx, r, r.Owner); err != nil {
				return fmt.Errorf("catch up with %s: %w", r.full(), err)
			}
		}
		return nil
	})
}

// follow moves the open pull requests of a branch that changed, in whichever
// repository they are.
func (s *Server) follow(ctx context.Context, changed *repo, branch, sha, by string) error {
	for _, r := range s.state.Repos {
		if r != changed && r.ID != changed.Parent {
			continue
		}
		if err := s.followIn(ctx, r, changed, branch, sha, by); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) followIn(ctx context.Context, r, changed *repo, branch, sha, by string) error {
	for _, t := range r.Threads {
		p := t.Pull
		if p == nil || t.Closed != nil {
			continue
		}
		isHead, isBase := p.Head == branch && s.state.headRepo(r, p) == changed, p.Base == branch && r == changed
		if sha == "" && (isHead || isBase) { // the branch is gone
			s.setState(r, t, "closed", "", by)
			continue
		}
		if isHead && p.HeadSHA != sha {
			before := p.HeadSHA
			p.HeadSHA, t.Updated = sha, s.now()
			if err := s.borrow(ctx, r, changed, branch); err != nil {
				return err
			}
			if err := errors.Join(s.pullRef(ctx, r, t), s.measure(ctx, r, p)); err != nil {
				return err
			}
			s.emitPull(r, t, event{Action: "synchronize", Before: before, After: sha}, by)
		}
		if isBase {
			if s.isAncestor(ctx, r, p.HeadSHA, sha) {
				now := s.now()
				p.Merged, p.MergedBy = &now, by
				s.setState(r, t, "closed", "", by)
				continue
			}
			p.BaseSHA = sha
			if err := s.measure(ctx, r, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// pullRef keeps the head of a pull request reachable.
func (s *Server) pullRef(ctx context.Context, r *repo, t *thread) error {
	_, err := s.git(ctx, r, "update-ref", fmt.Sprintf("refs/pull/%d/head", t.Number), t.Pull.HeadSHA)
	return err
}

func (s *Server) emitPush(ctx context.Context, r *repo, ref, before, after, by string) error {
	page := s.shaper().html(r)
	push := &pushShape{
		Ref: ref, Before: before, After: after, Created: before == "", Deleted: after == "",
		Commits: []pushedCommit{}, Pusher: pushedBy{Name: by},
	}
	if push.Created {
		push.Before = zeroSHA
	}
	if push.Deleted {
		push.After = zeroSHA
	}
	push.Compare = compareURL(page, push.Before, push.After)
	if !push.Deleted {
		span := []string{"--max-count=20", after}
		if push.Created {
			span = append(span, "--not", "--exclude="+strings.TrimPrefix(ref, "refs/heads/"), "--branches")
		} else {
			span = append(span, "^"+before)
			push.Forced = !s.isAncestor(ctx, r, before, after)
		}
		infos, err := s.commits(ctx, r, span...)
		if err != nil {
			return err
		}
		slices.Reverse(infos)
		for _, info := range infos {
			push.Commits = append(push.Commits, pushed(page, info))
		}
		head, err := s.commits(ctx, r, "--max-count=1", after)
		if err != nil || len(head) == 0 {
			return err
		}
		last := pushed(page, head[0])
		push.HeadCommit = &last
	}
	s.emit(r, "push", event{Push: push}, by)
	return nil
}

func pushed(page string, info commitInfo) pushedCommit {
	return pushedCommit{
		ID: info.sha, TreeID: info.tree, Distinct: true, Message: info.message, Timestamp: info.made,
		URL: page + "/commit/" + info.sha, Author: info.author, Committer: info.committer,
		Added: []string{}, Removed: []string{}, Modified: []string{},
	}
}
