package queuetest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return addr
		}
		if time.Now().After(deadline) {
			t.Fatalf("the Sentinel does not answer: %v", err)
		}
	}
}
