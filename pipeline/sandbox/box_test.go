package sandbox_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

func TestWhatABoxHides(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, ".netrc"), "password")
	t.Setenv("HOME", home)
	inBoxes(t, confining, func(t *testing.T, s *setting) {
		outside := filepath.Join(filepath.Dir(s.work), "outside")
		write(t, outside, "untouched")
		if err := os.Symlink(outside, filepath.Join(s.work, "link")); err != nil {
			t.Fatal(err)
		}
		for name, script := range map[string]string{
			"reads the home directory":            "cat " + home + "/.netrc",
			"reads the store":                     "cat " + s.store + "/secret",
			"lists the state directory":           "ls " + s.state + "/*",
			"writes to the system":                "echo x > /usr/bin/new",
			"writes to the root directory":        "echo x > /new",
			"writes to /etc":                      "echo x >> /etc/passwd",
			"reads the home of root":              "ls /root/.ssh /root/.config /root/.bashrc",
			"reads the shadow file":               "cat /etc/shadow",
			"reads through a link":                "cat link",
			"replaces the file behind a link":     "cp /etc/hostname link && cat link",
			"hard-links a file from outside":      "ln " + outside + " here && cat here",
			"signals the worker":                  "kill -0 " + itoa(os.Getpid()),
			"reads the environment of the worker": "cat /proc/" + itoa(os.Getpid()) + "/environ",
			"writes to the kernel's settings":     ": >> /proc/sys/kernel/core_pattern", /* opens, writes nothing */
			"mounts":                              "mount -t tmpfs none .",
		} {
			t.Run(name, func(t *testing.T) {
				if exit := s.run(t, s.sh(script)); exit.Code == 0 {
					t.Errorf("it worked: %s%s", s.stdout.String(), s.stderr.String())
				}
			})
		}
		// In a private /tmp these may seem to work; on the host they do nothing.
		s.run(t, s.sh("echo x > link; echo x > ../new; echo x > "+s.store+"/secret"))
		if got := read(t, outside) + read(t, s.store+"/secret"); got != "untouchedthe store" {
			t.Errorf("the files outside now hold %q", got)
		}
		if _, err := os.Stat(filepath.Dir(s.work) + "/new"); err == nil {
			t.Error("it wrote beside its directory")
		}
	})
}

func TestWhatABoxAllows(t *testing.T) {
	inBoxes(t, all, func(t *testing.T, s *setting) {
		lib := filepath.Join(filepath.Dir(s.work), "lib")
		if err := os.Mkdir(lib, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(lib, "data"), "library")
		write(t, filepath.Join(s.work, "tool"), "#!/bin/sh\necho tool \"$1\"\n")
		if err := os.Chmod(filepath.Join(s.work, "tool"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct{ script, want string }{
			"its directory":             {"echo hello > file; cat file; rm file", "hello"},
			"a readable directory":      {"cat " + lib + "/data", "library"},
			"a temporary file":          {"f=$(mktemp) && echo temp > $f && cat $f && rm $f", "temp"},
			"a program of the worktree": {"./tool x", "tool x"},
			"the null device":           {"echo x > /dev/null; echo fine", "fine"},
			"names of users":            {"id -un 0", "root"},
			"its own directory by name": {"pwd", s.work},
		} {
			t.Run(name, func(t *testing.T) {
				c := s.sh(tt.script)
				c.Readable = []string{lib}
				if exit := s.run(t, c); exit.Code != 0 || strings.TrimSpace(s.stdout.String()) != tt.want {
					t.Errorf("exit %d, %q %q, want %q", exit.Code, s.stdout.String(), s.stderr.String(), tt.want)
				}
			})
		}
	})
}

func TestReadOnlyDirectories(t *testing.T) {
	inBoxes(t, confining, func(t *testing.T, s *setting) {
		lib := filepath.Join(filepath.Dir(s.work), "lib")
		if err := os.Mkdir(lib, 0o755); err != nil {
			t.Fatal(err)
		}
		c := s.sh("echo x > " + lib + "/new")
		c.Readable = []string{lib}
		if exit := s.run(t, c); exit.Code == 0 {
			t.Error("a readable directory was written")
		}
		c = s.sh("echo x > new")
		c.Writable = nil
		if exit := s.run(t, c); exit.Code == 0 {
			t.Error("a working directory that is not listed as writable was written")
		}
		c = s.sh("echo x > new")
		c.Readable = []string{s.work}
		if exit := s.run(t, c); exit.Code == 0 {
			t.Error("a directory both readable and writable was written")
		}
	})
}

func TestReadOnlyInsideAWritableDirectory(t *testing.T) {
	inBoxes(t, []sandbox.Mode{sandbox.Bubblewrap}, func(t *testing.T, s *setting) {
		git := filepath.Join(s.work, ".git")
		if err := os.Mkdir(git, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(git, "config"), "original")
		c := s.sh("echo x > file && ! echo x > .git/config && ! mv .git gone && ! rm -rf .git")
		c.Readable = []string{git}
		if exit := s.run(t, c); exit.Code != 0 {
			t.Errorf("exit %d: %s", exit.Code, s.stderr.String())
		}
		if got := read(t, filepath.Join(git, "config")); got != "original" {
			t.Errorf("the git configuration now holds %q", got)
		}
	})
}

func TestOneFileInPlaceOfAnother(t *testing.T) {
	inBoxes(t, confining, func(t *testing.T, s *setting) {
		empty := filepath.Join(filepath.Dir(s.work), "empty")
		for _, dir := range []string{empty, filepath.Join(s.work, "settings")} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		write(t, filepath.Join(empty, "file"), "")
		write(t, filepath.Join(s.work, "settings", "hook"), "trap")
		write(t, filepath.Join(s.work, "settings.json"), "trap")
		if err := os.Symlink("settings.json", filepath.Join(s.work, "link")); err != nil {
			t.Fatal(err)
		}
		c := s.sh("test -z \"$(cat settings.json settings/file)\" && ! cat settings/hook && ! echo x > settings.json && ! echo x > settings/new && ! mv settings gone")
		c.Instead = map[string]string{filepath.Join(s.work, "settings.json"): filepath.Join(empty, "file"), filepath.Join(s.work, "settings"): empty}
		if s.box.Mode() != sandbox.Bubblewrap {
			if _, err := s.box.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "cannot show one file") {
				t.Errorf("got %v, want an error that says that it cannot", err)
			}
			return
		}
		if exit := s.run(t, c); exit.Code != 0 {
			t.Errorf("exit %d: %s", exit.Code, s.stderr.String())
		}
		if got := read(t, filepath.Join(s.work, "settings.json")); got != "trap" {
			t.Errorf("the settings on the host hold %q", got)
		}
		c.Instead = map[string]string{filepath.Join(s.work, "link"): filepath.Join(empty, "file")}
		if _, err := s.box.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("got %v, want an error that names the link", err)
		}
	})
}

func TestPathsThatAreRefused(t *testing.T) {
	inBoxes(t, confining, func(t *testing.T, s *setting) {
		// An agent replaced .git by a link: showing it would show what is behind.
		if err := os.Symlink(s.store, filepath.Join(s.work, ".git")); err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct {
			change func(*sandbox.Command)
			want   string
		}{
			"a link inside a writable directory":  {func(c *sandbox.Command) { c.Readable = []string{s.work + "/.git"} }, "symbolic link"},
			"a path below such a link":            {func(c *sandbox.Command) { c.Readable = []string{s.work + "/.git/secret"} }, "symbolic link"},
			"a readable path that does not exist": {func(c *sandbox.Command) { c.Readable = []string{s.work + "/no"} }, "no such file"},
			"the root directory":                  {func(c *sandbox.Command) { c.Readable = []string{"/"} }, "below /"},
			"a relative path":                     {func(c *sandbox.Command) { c.Writable = []string{"work"} }, "absolute"},
			"a relative working directory":        {func(c *sandbox.Command) { c.Dir = "work" }, "absolute"},
			"a program that does not exist":       {func(c *sandbox.Command) { c.Args = []string{"no-such-program"} }, "no-such-program"},
			"no program":                          {func(c *sandbox.Command) { c.Args = nil }, "no program"},
		} {
			t.Run(name, func(t *testing.T) {
				c := s.sh("cat .git/secret")
				tt.change(&c)
				_, err := s.box.Run(t.Context(), c)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want an error with %q", err, tt.want)
				}
			})
		}
	})
}

func TestABoxSeesOnlyItsOwnProcesses(t *testing.T) {
	inBoxes(t, []sandbox.Mode{sandbox.Bubblewrap}, func(t *testing.T, s *setting) {
		s.run(t, s.sh("ls -d /proc/[0-9]* | wc -l"))
		if got := strings.TrimSpace(s.stdout.String()); len(got) != 1 {
			t.Errorf("%s processes are visible, want those of the box", got)
		}
	})
}

func TestOffline(t *testing.T) {
	inBoxes(t, confining, func(t *testing.T, s *setting) {
		listener := listen(t)
		script := "exec 3<>/dev/tcp/127.0.0.1/" + listener
		for _, offline := range []bool{false, true} {
			c := s.sh("")
			c.Args, c.Offline = []string{"bash", "-c", script}, offline
			if exit := s.run(t, c); (exit.Code == 0) == offline {
				t.Errorf("offline %t: exit %d: %s", offline, exit.Code, s.stderr.String())
			}
		}
	})
}

func TestTheEnvironmentIsTheAllowList(t *testing.T) {
	t.Setenv("SLIPWAY_GITHUB_TOKEN", "ghs_secret")
	t.Setenv("LC_TIME", "C")
	t.Setenv("TERM", "xterm")
	inBoxes(t, all, func(t *testing.T, s *setting) {
		c := s.sh("")
		c.Args = []string{"env"}
		c.Env = sandbox.Environ("/home/of/issue", "MODEL_KEY=k", "LC_TIME=C.UTF-8")
		s.run(t, c)
		var keys []string
		for line := range strings.Lines(s.stdout.String()) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			keys = append(keys, key)
			for k, want := range map[string]string{"HOME": "/home/of/issue", "MODEL_KEY": "k", "LC_TIME": "C.UTF-8", "PWD": s.work} {
				if key == k && value != want {
					t.Errorf("%s is %q, want %q", key, value, want)
				}
			}
		}
		keys = slices.DeleteFunc(keys, func(k string) bool { return k == "LANG" || strings.HasPrefix(k, "LC_") && k != "LC_TIME" })
		slices.Sort(keys)
		if want := []string{"HOME", "LC_TIME", "MODEL_KEY", "PATH", "PWD", "SLIPWAY_RUN", "TMPDIR"}; !slices.Equal(keys, want) {
			t.Errorf("the environment has %v, want %v", keys, want)
		}
	})
}

func TestLimits(t *testing.T) {
	inBoxes(t, confining, func(t *testing.T, s *setting) {
		s.run(t, s.sh("ulimit -c; ulimit -Hc; ulimit -n; ulimit -f"))
		got := strings.Fields(s.stdout.String())
		if len(got) != 4 || got[0] != "0" || got[1] != "0" || got[2] == "unlimited" || got[3] == "unlimited" {
			t.Errorf("core, hard core, files and file size are limited to %v", got)
		}
	})
}

func TestModes(t *testing.T) {
	for name, tt := range map[string]struct {
		o    sandbox.Options
		want string
	}{
		"unknown":                          {sandbox.Options{Mode: "chroot"}, `unknown mode "chroot"`},
		"none without a state directory":   {sandbox.Options{Mode: sandbox.None}, "state directory"},
		"a read-only directory is missing": {sandbox.Options{Mode: sandbox.None, ReadOnly: []string{"/no/such"}}, "/no/such"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := sandbox.New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %s", err, tt.want)
			}
		})
	}
	t.Run("auto without bubblewrap is not bubblewrap", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		box, err := sandbox.New(sandbox.Options{StateDir: t.TempDir()})
		switch {
		case err == nil && box.Mode() != sandbox.Landlock:
			t.Errorf("mode is %s", box.Mode())
		case err != nil && !strings.Contains(err.Error(), "sandbox: none"):
			t.Errorf("the error does not name the way out: %v", err)
		}
	})
}
