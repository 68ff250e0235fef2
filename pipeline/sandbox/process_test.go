package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

func itoa(n int) string { return strconv.Itoa(n) }

// listen accepts connections on the loopback interface and returns the port.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// everywhere runs a test for the boxes and for Host: the promises are the same.
func everywhere(t *testing.T, test func(t *testing.T, s *setting, run func(context.Context, sandbox.Command) (sandbox.Exit, error))) {
	inBoxes(t, all, func(t *testing.T, s *setting) { test(t, s, s.box.Run) })
	t.Run("host", func(t *testing.T) { test(t, newSetting(t, sandbox.None), sandbox.Host) })
}

type runner = func(context.Context, sandbox.Command) (sandbox.Exit, error)

func TestHowAProcessEnds(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		for name, tt := range map[string]struct {
			script string
			code   int
		}{
			"well":              {"exit 0", 0},
			"with a code":       {"exit 3", 3},
			"by a crash":        {"kill -SEGV $$", -1},
			"by its own signal": {"kill -TERM $$", -1},
		} {
			t.Run(name, func(t *testing.T) {
				if exit, err := run(t.Context(), s.sh(tt.script)); err != nil || exit.Code != tt.code {
					t.Errorf("got %d and %v, want %d", exit.Code, err, tt.code)
				}
			})
		}
	})
}

func TestLeftOversAreGone(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		for name, script := range map[string]string{
			"a child that holds stdout": "sleep %s & echo out",
			"a setsid grandchild":       "setsid sh -c 'sleep %s & wait' & echo out",
			"a daemon":                  "(setsid setsid sleep %s < /dev/null > /dev/null 2>&1 &); echo out",
		} {
			t.Run(name, func(t *testing.T) {
				nap := nap()
				// The left-over exists for sure when the program ends.
				wait := "; " + untilSleeping(nap)
				began := time.Now()
				exit, err := run(t.Context(), s.sh(strings.ReplaceAll(script, "%s", nap)+wait))
				if err != nil || exit.Code != 0 || s.stdout.String() != "out\n" {
					t.Errorf("exit %d, %v, %q", exit.Code, err, s.stdout.String())
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %s", took)
				}
				if left := sleepers(t, nap); len(left) > 0 {
					t.Errorf("%v are left", left)
				}
			})
		}
	})
}

// The children of other runs, which are at work beside it, hide no left-over.
func TestLeftOversAreGoneBesideOtherRuns(t *testing.T) {
	s := newSetting(t, sandbox.None)
	ctx, stop := context.WithCancelCause(t.Context())
	var others sync.WaitGroup
	over := errors.New("the test is over")
	for range 12 {
		beside := newSetting(t, sandbox.None).sh("echo up; exec sleep " + nap())
		up := make(chan struct{})
		beside.Stdout = &lineWriter{want: "up", seen: up}
		others.Go(func() {
			if _, err := sandbox.Host(ctx, beside); !errors.Is(err, over) {
				t.Errorf("another run ended: %v", err)
			}
		})
		<-up
	}
	for range 20 {
		nap := nap()
		_, err := sandbox.Host(t.Context(), s.sh("(setsid setsid sleep "+nap+" < /dev/null > /dev/null 2>&1 &); "+untilSleeping(nap)))
		if left := sleepers(t, nap); err != nil || len(left) > 0 {
			t.Errorf("%v are left, %v", left, err)
		}
	}
	stop(over)
	others.Wait()
}

func TestAHidingDaemonIsGone(t *testing.T) {
	inBoxes(t, confining, func(t *testing.T, s *setting) {
		nap := nap()
		c := s.sh("")
		c.Args = []string{"bash", "-c", "(setsid env -u SLIPWAY_RUN setsid sleep " + nap + " > /dev/null 2>&1 &); " + untilSleeping(nap)}
		s.run(t, c)
		if left := sleepers(t, nap); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}

// stubborn ignores what asks it to end, and has a child that left its session.
func stubborn(nap string) string {
	return "trap '' INT TERM; setsid sh -c \"trap '' INT TERM; sleep " + nap + "\" & while :; do echo ready; sleep " + nap + "; done"
}

func TestCancel(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		nap := nap()
		ready := make(chan struct{})
		c := s.sh(stubborn(nap))
		c.Stdout = &lineWriter{want: "ready", seen: ready}
		cause := errors.New("the maintainer said stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		var began time.Time
		go func() {
			<-ready
			began = time.Now()
			cancel(cause)
		}()
		exit, err := run(ctx, c)
		if err != cause || exit.Code != -1 {
			t.Errorf("exit %d and %v, want the cause", exit.Code, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		if left := sleepers(t, nap); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}

func TestSIGINTComesFirst(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		ready := make(chan struct{})
		var out lineWriter
		out.want, out.seen = "ready", ready
		c := s.sh("trap 'echo result; exit 0' INT; echo ready; while :; do sleep 0.05; done")
		c.Stdout, c.Grace = &out, 5*time.Second
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-ready
			cancel()
		}()
		if _, err := run(ctx, c); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if out.text.String() != "ready\nresult\n" {
			t.Errorf("it wrote %q, want a last result", out.text.String())
		}
	})
}

func TestTimeLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		nap := nap()
		c := s.sh(stubborn(nap))
		c.Timeout = 300 * time.Millisecond
		exit, err := run(t.Context(), c)
		if !errors.Is(err, sandbox.ErrTimeout) || exit.Wall > 5*time.Second {
			t.Errorf("got %v after %s", err, exit.Wall)
		}
		if left := sleepers(t, nap); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}

// countWriter counts, so that a test can print more than it wants to keep.
type countWriter struct{ n int64 }

func (w *countWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return len(p), nil
}

func TestOutputLimit(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		var out countWriter
		c := s.sh("head -c 500000000 /dev/zero; sleep 100")
		c.Stdout = &out
		exit, err := run(t.Context(), c)
		if !errors.Is(err, sandbox.ErrOutput) || out.n != sandbox.DefaultMaxOutput {
			t.Errorf("got %v and %d bytes, want the limit's", err, out.n)
		}
		if exit.Stdout < out.n {
			t.Errorf("%d bytes seen, %d passed on", exit.Stdout, out.n)
		}
		t.Run("stderr counts too", func(t *testing.T) {
			c := s.sh("head -c 600 /dev/zero; head -c 600 /dev/zero >&2; sleep 100")
			c.MaxOutput = 1000
			if _, err := run(t.Context(), c); !errors.Is(err, sandbox.ErrOutput) || s.stdout.Len()+s.stderr.Len() != 1000 {
				t.Errorf("got %v, %d and %d bytes", err, s.stdout.Len(), s.stderr.Len())
			}
		})
	})
}

func TestStreams(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		t.Run("huge stderr", func(t *testing.T) {
			exit, err := run(t.Context(), s.sh("head -c 5000000 /dev/zero >&2; echo done"))
			if err != nil || s.stderr.Len() != 5000000 || exit.Stderr != 5000000 || s.stdout.String() != "done\n" {
				t.Errorf("got %v, %d bytes, stdout %q", err, s.stderr.Len(), s.stdout.String())
			}
		})
		t.Run("one writer for both keeps the order", func(t *testing.T) {
			c := s.sh("echo 1; echo 2 >&2; echo 3; echo 4 >&2")
			c.Stderr = c.Stdout
			if _, err := run(t.Context(), c); err != nil || s.stdout.String() != "1\n2\n3\n4\n" {
				t.Errorf("got %v and %q", err, s.stdout.String())
			}
		})
		t.Run("input", func(t *testing.T) {
			c := s.sh("cat")
			c.Stdin = strings.NewReader(strings.Repeat("x", 1<<20))
			if _, err := run(t.Context(), c); err != nil || s.stdout.Len() != 1<<20 {
				t.Errorf("got %v and %d bytes", err, s.stdout.Len())
			}
		})
		t.Run("input that nobody reads", func(t *testing.T) {
			c := s.sh("exit 0")
			c.Stdin = strings.NewReader(strings.Repeat("x", 1<<20))
			if exit, err := run(t.Context(), c); err != nil || exit.Code != 0 {
				t.Errorf("got %d and %v", exit.Code, err)
			}
		})
		t.Run("no input", func(t *testing.T) {
			if _, err := run(t.Context(), s.sh("cat; echo end")); err != nil || s.stdout.String() != "end\n" {
				t.Errorf("got %v and %q", err, s.stdout.String())
			}
		})
		t.Run("a writer that fails", func(t *testing.T) {
			r, w := io.Pipe()
			broken := errors.New("disk full")
			_ = r.CloseWithError(broken)
			c := s.sh("echo x; sleep 100")
			c.Stdout = w
			if _, err := run(t.Context(), c); !errors.Is(err, broken) {
				t.Errorf("got %v, want the writer's error", err)
			}
		})
	})
}

func TestCPUTime(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		// A child of the program does the work.
		exit, err := run(t.Context(), s.sh("sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; true"))
		if err != nil {
			t.Fatal(err)
		}
		if exit.CPU < 50*time.Millisecond || exit.CPU > exit.Wall*2+time.Second {
			t.Errorf("%s of CPU in %s", exit.CPU, exit.Wall)
		}
	})
}

func TestACanceledContextStartsNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("too late")
		cancel(cause)
		if _, err := run(ctx, s.sh("echo x > file")); err != cause {
			t.Errorf("got %v", err)
		}
		if _, err := os.Stat(s.work + "/file"); err == nil {
			t.Error("it ran")
		}
	})
}

func TestHostInheritsNothing(t *testing.T) {
	t.Setenv("SECRET", "x")
	var out bytes.Buffer
	if _, err := sandbox.Host(t.Context(), sandbox.Command{Args: []string{"env"}, Dir: t.TempDir(), Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if key, _, _ := strings.Cut(out.String(), "="); key != "SLIPWAY_RUN" || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("the environment has %q, want the mark of the run alone", out.String())
	}
}

func TestManyAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, s *setting, run runner) {
		errs := make(chan error)
		for i := range 8 {
			go func() {
				var out bytes.Buffer
				c := sandbox.Command{
					Args: []string{"sh", "-c", "(setsid sleep 100 &); echo " + itoa(i)}, Dir: s.work, Env: sandbox.Environ(s.work), Stdout: &out,
				}
				_, err := run(t.Context(), c)
				if err == nil && out.String() != itoa(i)+"\n" {
					err = errors.New("wrote " + out.String())
				}
				errs <- err
			}()
		}
		for range 8 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}
