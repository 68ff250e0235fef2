package repo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Remote is where a repository is fetched from and pushed to: an http or
// https URL, or the absolute path of a local repository, whose checkout, index
// and branches are left as they are. The credential is asked for by git only
// when the server wants one, and handed over in a private file.
type Remote struct {
	URL   string
	User  string // "" means x-access-token, GitHub's name for an App's token
	Token string `json:"-"`
	// CAFile has the certificates, in PEM, that an https URL is trusted by; ""
	// means those of the system.
	CAFile string
}

// String leaves the credential out, also one that was put into the URL.
func (r Remote) String() string {
	if r.local() || !strings.Contains(r.URL, "@") {
		return r.URL
	}
	return "[a URL that holds a credential]"
}

// GoString leaves the credential out.
func (r Remote) GoString() string { return fmt.Sprintf("repo.Remote{URL: %q}", r.String()) }

// LogValue leaves the credential out.
func (r Remote) LogValue() slog.Value { return slog.StringValue(r.String()) }

// local tells whether the remote is a directory of this machine.
func (r Remote) local() bool { return filepath.IsAbs(r.URL) || strings.HasPrefix(r.URL, "file://") }

// check refuses what could make git run a program, and a credential in the URL.
func (r Remote) check() error {
	if strings.ContainsFunc(r.URL, func(c rune) bool { return c < 32 || c == 127 }) {
		return errors.New("remote URL: it contains control characters")
	}
	if r.local() {
		return nil
	}
	if strings.Contains(r.URL, "@") { // wherever it is: a token with a slash moves it into the path
		return errors.New("remote URL: it must not contain a credential, or any @")
	}
	u, err := url.Parse(r.URL)
	switch {
	case err != nil:
		return fmt.Errorf("remote URL %q: it cannot be parsed", r.URL)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return fmt.Errorf("remote URL %q: neither http, https nor an absolute path", r.URL)
	case strings.ContainsAny(r.User+r.Token, "\r\n\x00"):
		return fmt.Errorf("remote %s: its credential contains a line end", r.URL)
	}
	return nil
}

// Fetch brings branch of the remote into refs/slipway/base/<branch> and returns
// its commit. An empty branch is the remote's default. A full ref name, such as
// refs/pull/7/head, is kept below refs/slipway/other/.
func (m *Mirror) Fetch(ctx context.Context, r Remote, branch string) (string, error) {
	if branch == "" {
		var err error
		if branch, err = m.DefaultBranch(ctx, r); err != nil {
			return "", err
		}
	}
	from, to, err := fetchRefs(branch)
	if err != nil {
		return "", err
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	// A shallow source is taken as it is: its history ends where the user's does.
	args := []string{
		"fetch", "--quiet", "--force", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
		"--no-auto-maintenance", "--update-shallow", "--end-of-options", r.URL, "+" + from + ":" + to,
	}
	if _, err = m.remote(ctx, r, args...); err != nil {
		// A branch "a" that gave way to "a/b" leaves a ref in the way.
		if cleared, clearErr := m.clearWay(ctx, to); clearErr == nil && cleared {
			_, err = m.remote(ctx, r, args...)
		}
	}
	if err != nil {
		return "", fmt.Errorf("fetch %s of %s: %w", branch, r, err)
	}
	commit, err := m.Ref(ctx, to)
	if err == nil && commit == "" {
		err = fmt.Errorf("fetch %s of %s: git brought no commit", branch, r)
	}
	return commit, err
}

func fetchRefs(branch string) (from, to string, err error) {
	if rest, full := strings.CutPrefix(branch, "refs/"); full {
		return branch, "refs/slipway/other/" + rest, checkRef(branch)
	}
	return "refs/heads/" + branch, "refs/slipway/base/" + branch, CheckBranch(branch)
}

// clearWay removes refs that keep ref from existing.
func (m *Mirror) clearWay(ctx context.Context, ref string) (cleared bool, err error) {
	below, err := m.Refs(ctx, ref)
	if err != nil {
		return false, err
	}
	for i := strings.LastIndex(ref, "/"); i > len("refs/slipway/base"); i = strings.LastIndex(ref[:i], "/") {
		below = append(below, Ref{Name: ref[:i]})
	}
	for _, old := range below {
		if old.Name == ref {
			continue
		}
		commit, err := m.Ref(ctx, old.Name)
		if err != nil {
			return cleared, err
		}
		if commit == "" {
			continue
		}
		if err := m.SetRef(ctx, old.Name, "", commit); err != nil {
			return cleared, err
		}
		cleared = true
	}
	return cleared, nil
}

// DefaultBranch returns the branch that the remote's HEAD names; for a local
// repository that is the one checked out.
func (m *Mirror) DefaultBranch(ctx context.Context, r Remote) (string, error) {
	out, err := m.remote(ctx, r, "ls-remote", "--symref", "--end-of-options", r.URL, "HEAD")
	if err != nil {
		return "", fmt.Errorf("default branch of %s: %w", r, err)
	}
	for line := range strings.Lines(string(out)) {
		if rest, ok := strings.CutPrefix(line, "ref: refs/heads/"); ok {
			branch, _, _ := strings.Cut(rest, "\t")
			return branch, CheckBranch(branch)
		}
	}
	return "", fmt.Errorf("default branch of %s: it has no commit, or its HEAD is at no branch", r)
}

// RemoteHead returns the commit at the remote's branch, "" when it has no such branch.
func (m *Mirror) RemoteHead(ctx context.Context, r Remote, branch string) (string, error) {
	if err := CheckBranch(branch); err != nil {
		return "", err
	}
	ref := "refs/heads/" + branch
	out, err := m.remote(ctx, r, "ls-remote", "--end-of-options", r.URL, ref)
	if err != nil {
		return "", fmt.Errorf("head of %s of %s: %w", branch, r, err)
	}
	for line := range strings.Lines(string(out)) {
		if hash, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); name == ref {
			return hash, nil
		}
	}
	return "", nil
}

// Push moves branch of the remote from seen to commit, which must descend from
// it; an empty seen means that the branch must not exist. A branch that is at
// commit already is a success. One that is elsewhere is ErrMoved: whoever holds
// a stale view loses.
func (m *Mirror) Push(ctx context.Context, r Remote, commit, branch, seen string) error {
	if err := errors.Join(CheckBranch(branch), checkHash(commit)); err != nil {
		return err
	}
	what := fmt.Sprintf("push %s to %s of %s", short(commit), branch, r)
	if seen != "" {
		if err := checkHash(seen); err != nil {
			return err
		}
		// The lease below would let a rewrite pass.
		switch forward, err := m.forward(ctx, seen, commit); {
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case !forward:
			return fmt.Errorf("%s: it does not descend from %s", what, short(seen))
		}
	}
	ref := "refs/heads/" + branch
	args := []string{
		"push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no",
		"--force-with-lease=" + ref + ":" + seen,
	}
	if r.local() {
		// The user's repository has hooks and settings of its own; none of them
		// may run here or touch the checkout.
		args = append(args, "--receive-pack=git -c core.hooksPath=/dev/null -c core.fsmonitor= -c receive.autogc=false"+
			" -c receive.denyCurrentBranch=refuse receive-pack")
	}
	args = append(args, "--end-of-options", r.URL, commit+":"+ref)
	_, err := m.remote(ctx, r, args...)
	if err == nil {
		return nil
	}
	if code(err) != 1 { // 1: the remote answered and refused
		return fmt.Errorf("%s: %w", what, err)
	}
	switch now, headErr := m.RemoteHead(ctx, r, branch); {
	case headErr != nil:
		return errors.Join(fmt.Errorf("%s: %w", what, err), headErr)
	case now == commit:
		return nil
	case now != seen:
		return fmt.Errorf("%s: it is at %s, not at %s: %w", what, short(now), short(seen), ErrMoved)
	}
	return fmt.Errorf("%s: the remote refused: %w", what, err)
}

// forward tells whether commit descends from seen. A seen that was never
// fetched cannot be in the history of a commit that was.
func (m *Mirror) forward(ctx context.Context, seen, commit string) (bool, error) {
	if !m.Has(ctx, seen) && ctx.Err() == nil {
		return false, nil
	}
	return m.IsAncestor(ctx, seen, commit)
}

// remote runs a git that talks to r.
func (m *Mirror) remote(ctx context.Context, r Remote, args ...string) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	env, done, err := m.credential(r)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.CAFile != "" {
		env = append(env, "GIT_SSL_CAINFO="+r.CAFile)
	}
	out, err := run(ctx, call{gitDir: m.dir, env: env, args: args})
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return out, err
	}
	if r.Token != "" { // a server may echo what it was sent
		f.text = strings.ReplaceAll(f.text, r.Token, "[redacted]")
	}
	if f.code == 1 { // a push's verdict is on the output
		f.text = strings.TrimSpace(f.text + "\n" + verdict(out))
	}
	return out, classify(f)
}

// verdict is the line of a push's output that says why.
func verdict(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "!") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// classify reads git's words; LC_ALL=C keeps them still.
func classify(f *failure) error {
	said := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(f.text, w) {
				return true
			}
		}
		return false
	}
	switch {
	case said("dubious ownership"): // git's own advice, safe.directory, would have no effect here
		return errors.New("the repository belongs to another user: run Slipway as its owner")
	case said("Authentication failed for", "could not read Username", "could not read Password", "terminal prompts disabled", "returned error: 401", "returned error: 403"):
		return fmt.Errorf("%w: %w", ErrDenied, f)
	case said("couldn't find remote ref", "does not appear to be a git repository", "' not found", "not a git repository"):
		return fmt.Errorf("%w: %w", ErrMissing, f)
	}
	return f
}

// askpassProgram answers git's two questions for one origin only: a redirect to
// another host gets no answer. Only the shell's own commands and cat touch the
// credential, so it is in no argument list.
const askpassProgram = `#!/bin/sh
# Slipway's answer to git: the credential in $SLIPWAY_CREDENTIAL, for its origin alone.
d=$SLIPWAY_CREDENTIAL
IFS= read -r scheme <"$d/scheme"
IFS= read -r host <"$d/host"
case $1 in
"Username for '$scheme://$host': ") cat "$d/user" ;;
"Password for '$scheme://"*"@$host': ") cat "$d/token" ;;
*) exit 1 ;;
esac
`

func (m *Mirror) askpassFile() string { return filepath.Join(m.private(), "askpass") }

// credential writes the files that the askpass program reads.
func (m *Mirror) credential(r Remote) (env []string, done func(), err error) {
	if r.Token == "" || r.local() {
		return nil, func() {}, nil
	}
	parent := filepath.Join(m.private(), "credentials")
	sweep(parent, 24*time.Hour)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, nil, fmt.Errorf("credential: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, nil, fmt.Errorf("credential: %w", err)
	}
	done = func() { _ = os.RemoveAll(dir) } // else the sweep does it
	u, err := url.Parse(r.URL)
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("credential: %w", err)
	}
	user := r.User
	if user == "" {
		user = "x-access-token"
	}
	for name, text := range map[string]string{"scheme": u.Scheme, "host": u.Host, "user": user, "token": r.Token} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			done()
			return nil, nil, fmt.Errorf("credential: %w", err)
		}
	}
	return []string{"GIT_ASKPASS=" + m.askpassFile(), "SLIPWAY_CREDENTIAL=" + dir}, done, nil
}
