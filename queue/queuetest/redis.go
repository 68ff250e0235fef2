package queuetest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
	"golang.org/x/sys/unix"
)

// A Redis is a real one, in a directory of its own, that a test may kill.
type Redis struct {
	t    testing.TB
	port string
	dir  string
	args []string
	cmd  *exec.Cmd
}

// StartRedis starts a Redis that keeps every promise, but for what the
// arguments change.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	sandboxtest.Need(t, "redis-server")
	r := &Redis{t: t, port: FreePort(t), dir: t.TempDir(), args: args}
	r.Start()
	t.Cleanup(r.Kill)
	return r
}

// FreePort is a port of this host that nobody listens on now.
func FreePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

// Start starts it again, with what it has kept, and waits until it answers.
func (r *Redis) Start() {
	r.t.Helper()
	// Who may write no more is told so by the error alone, as on a full disk.
	r.cmd = exec.Command("env", append([]string{
		"--ignore-signal=XFSZ", "redis-server",
		"--port", r.port, "--bind", "127.0.0.1", "--dir", r.dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
		"--maxmemory-policy", "noeviction", "--loglevel", "warning",
	}, r.args...)...)
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	c := r.Client()
	defer c.Close() //nolint:errcheck // opened to look at
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		err := c.Ping(ctx).Err()
		if err == nil || strings.HasPrefix(err.Error(), "NOAUTH") {
			return
		}
		if ctx.Err() != nil {
			r.t.Fatalf("redis-server does not answer: %v", err)
		}
	}
}

// Follow makes it a replica of another, and waits until it has everything.
func (r *Redis) Follow(master *Redis) {
	r.t.Helper()
	c := r.Client()
	defer c.Close() //nolint:errcheck // opened to look at
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	if err := c.ReplicaOf(ctx, "127.0.0.1", master.port).Err(); err != nil {
		r.t.Fatal(err)
	}
	await(ctx, r.t, "master_link_status:up", func() string { return c.Info(ctx, "replication").Val() })
}

// await asks until the answer has a text in it.
func await(ctx context.Context, t testing.TB, want string, ask func() string) {
	t.Helper()
	for {
		got := ask()
		if strings.Contains(got, want) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("no %q came, but %s", want, got)
		}
	}
}

// Client talks to it directly.
func (r *Redis) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: 1})
}

// Port is where it listens, at 127.0.0.1.
func (r *Redis) Port() string { return r.port }

// Addr is its host and port.
func (r *Redis) Addr() string { return "127.0.0.1:" + r.port }

// URL is its address for queue.OpenRedis.
func (r *Redis) URL() string { return "redis://" + r.Addr() }

// Kill ends it as kill -9 does.
func (r *Redis) Kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait() // signal: killed
}

// Forget has something happen, and then ends it and starts it again as it was
// before: what it acknowledged meanwhile is lost, as in a fail-over to a replica
// that had not received it.
func (r *Redis) Forget(happens func()) {
	r.t.Helper()
	before := filepath.Join(r.t.TempDir(), "before")
	if err := os.CopyFS(before, os.DirFS(r.dir)); err != nil {
		r.t.Fatal(err)
	}
	happens()
	r.Kill()
	err := os.RemoveAll(r.dir)
	if err == nil {
		err = os.CopyFS(r.dir, os.DirFS(before))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.Start()
}

// FillDisk leaves it no room for another byte, until FreeDisk or Start. One with
// appendfsync always ends itself when it finds out.
func (r *Redis) FillDisk() { r.limitFiles(0) }

// FreeDisk gives it room again.
func (r *Redis) FreeDisk() { r.limitFiles(unix.RLIM_INFINITY) }

func (r *Redis) limitFiles(bytes uint64) {
	r.t.Helper()
	if err := unix.Prlimit(r.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
		r.t.Fatal(err)
	}
}

// Stop makes it stand still, with every connection open, until Continue.
func (r *Redis) Stop() { r.signal(syscall.SIGSTOP) }

// Continue lets it go on.
func (r *Redis) Continue() { r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}
