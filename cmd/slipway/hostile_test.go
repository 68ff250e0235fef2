package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
)

// An agent that tries to leave its worktree, or to make Slipway run its code,
// fails its issue with the rule that it broke, and leaves no trace.
func TestHostileAgents(t *testing.T) {
	t.Parallel()
	const canary = "@canary@" // the path of a file that nobody may make
	for name, row := range map[string]struct {
		coder string
		want  string
		bwrap bool // only bubblewrap keeps the agent from it
	}{
		"writes beside its worktree": {
			// It writes into the sandbox's own view, which ends with the call.
			coder: "echo x > ../../planted-beside", want: "stuck: two iterations changed nothing", bwrap: true,
		},
		"writes somewhere else": {
			coder: "echo x > " + canary, want: canary, bwrap: true,
		},
		"writes into its clone": {
			coder: `echo x > "$(git rev-parse --git-common-dir)/refs/heads/x"`, want: "Read-only file system", bwrap: true,
		},
		"puts a directory with hooks in the place of .git": {
			coder: "rm .git; mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch " + canary + "\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
			want:  "the worktree's .git file was replaced",
		},
		"plants a hook": {
			coder: `hooks=$(git rev-parse --git-path hooks); mkdir -p "$hooks"; printf '#!/bin/sh\ntouch ` + canary + `\n' > "$hooks/post-checkout"`,
			want:  "Read-only file system", bwrap: true,
		},
		"configures a clean filter": {
			coder: "echo '* filter=evil' > .gitattributes; git config filter.evil.clean 'touch " + canary + "; cat'",
			want:  "Read-only file system", bwrap: true,
		},
		"brings a repository with a file system monitor": {
			coder: "git init -q inner; git -C inner config core.fsmonitor 'touch " + canary + "'; touch inner/file",
			want:  `"inner/.git": a repository inside the worktree is not allowed`,
		},
		"links out of the tree": {
			coder: "ln -s ../../../etc/passwd users", want: `"users": the symbolic link leaves the repository`,
		},
		"links to an absolute path": {
			coder: "ln -s /etc users", want: `"users": the symbolic link leaves the repository`,
		},
		"prints 500 MB": {
			coder: "head -c 500000000 /dev/zero", want: "the agent wrote more than 64 MiB",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if row.bwrap {
				sandboxtest.Need(t, "bwrap")
			}
			term, repo := newTerminal(t), newRepo(t, checked(green))
			outside := filepath.Join(t.TempDir(), "planted")
			was := lookAt(t, repo)
			script := "set -e\n" + strings.ReplaceAll(row.coder, canary, outside) + "\n"
			end, d := company.but(cast{"coder.sh": script}).on(term, repo)
			term.ended(end, d, 1, "failed", "no issue landed; add-greet: ")
			why := fmt.Sprint(d.Debt)
			if !strings.Contains(why, strings.ReplaceAll(row.want, canary, outside)) {
				t.Errorf("the reason does not name %q: %s", row.want, why)
			}
			if d.Branch != "" || strings.Contains(git(t, repo, "branch", "--list"), "slipway/") {
				t.Errorf("something was published: %+v", d)
			}
			for _, dir := range []string{filepath.Dir(outside), term.state, filepath.Dir(repo)} {
				if planted := find(t, dir, "planted"); len(planted) > 0 {
					t.Errorf("planted outside the worktree: %v", planted)
				}
			}
			was.untouched(t)
			term.sound(repo)
		})
	}
}

// Where bubblewrap is missing, landlock keeps an agent from writing outside, and
// its processes are found and ended.
func TestHostileAgentUnderLandlock(t *testing.T) {
	t.Parallel()
	sandboxtest.Need(t, "setsid")
	if _, err := sandbox.New(sandbox.Options{Mode: sandbox.Landlock, StateDir: t.TempDir()}); err != nil {
		t.Skip(err)
	}
	term, repo := newTerminal(t, "SLIPWAY_SANDBOX=landlock"), newRepo(t, checked(green))
	was, sleep := lookAt(t, repo), sleeper()
	outside := filepath.Join(t.TempDir(), "planted")
	end, d := company.but(cast{"coder.sh": "setsid " + sleep + " >/dev/null 2>&1 &\nset -e\necho x > " + outside + "\n"}).on(term, repo)
	gone(t, sleep)
	term.ended(end, d, 1, "failed", "Permission denied")
	if planted := find(t, filepath.Dir(outside), "planted"); len(planted) > 0 {
		t.Errorf("planted outside the worktree: %v", planted)
	}
	was.untouched(t)
	term.sound(repo)
}

// find lists the files below dir whose name begins with prefix.
func find(t *testing.T, dir, prefix string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(d.Name(), prefix) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A filter that the environment configures for everyone in the sandbox is not
// Slipway's: a harmless file that names it is committed as it is.
func TestFilterWithoutConfigurationIsOnlyText(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "planted")
	term, repo := newTerminal(t), newRepo(t, checked(green))
	end, d := company.but(cast{"coder.sh": "echo '* filter=evil' > .gitattributes\ngit config --global filter.evil.clean 'touch " + outside + "; cat'\n" + company["coder.sh"]}).on(term, repo)
	term.ended(end, d, 0, "succeeded")
	if got := git(t, repo, "show", d.Branch+":greet.sh"); got != "echo hello" {
		t.Errorf("greet.sh = %q", got)
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("the filter ran")
	}
	term.sound(repo)
}
