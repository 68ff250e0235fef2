package queuetest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// SentinelMaster is the name under which a Sentinel of StartSentinel knows its
// master.
const SentinelMaster = "store"

// StartSentinel starts a Sentinel that watches a master, at a port of this host,
// and is alone to decide. It returns where it listens. Lines are added to its
// configuration.
func StartSentinel(t testing.TB, master string, lines ...string) (addr string) {
	t.Helper()
	port := FreePort(t)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor %s 127.0.0.1 %s 1\n%s\n", port, SentinelMaster, master, strings.Join(lines, "\n"))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", conf, "--sentinel")
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr = net.JoinHostPort("127.0.0.1", port)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	await(ctx, t, "listens", func() string {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err.Error()
		}
		_ = c.Close()
		return "listens"
	})
	return addr
}

// AwaitReplica waits until a Sentinel knows somebody to promote.
func AwaitReplica(t testing.TB, sentinel string) {
	t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	defer c.Close() //nolint:errcheck // opened to look at
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	await(ctx, t, "master-link-status:ok", func() string {
		replicas, err := c.Replicas(ctx, SentinelMaster).Result()
		if err != nil || len(replicas) == 0 {
			return fmt.Sprint("no replica, ", err)
		}
		return "master-link-status:" + replicas[0]["master-link-status"]
	})
}
