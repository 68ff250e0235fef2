package queue_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// What docs/deploy.md says of Redis is typed as it stands there: only the
// directories are other ones, and systemctl starts and stops this test's Redis.
func TestTheBackupOfRedisThatTheDocumentTells(t *testing.T) {
	t.Parallel()
	sandboxtest.Need(t, "redis-cli")
	page, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d shell blocks, want the backup and the restore", len(blocks))
	}
	r := queuetest.StartRedis(t)
	c := r.Client()
	defer c.Close() //nolint:errcheck // opened to look at
	dir := c.ConfigGet(t.Context(), "dir").Val()["dir"]
	host, backups := newRedisHost(t, r.Addr(), dir), t.TempDir()
	places := strings.NewReplacer("/var/lib/redis", dir, "/var/backups", backups)

	s := openRedis(t, r.URL(), t.TempDir())
	put(t, s, "a")
	put(t, s, "b")
	lease, err := s.Claim(t.Context(), "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	record := func(key string) error {
		_, err := s.Append(t.Context(), lease, queue.Entry{Key: key, Kind: queue.Call})
		return err
	}
	if err := record("before"); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { // work goes on meanwhile
		for n := 0; ; n++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := record(fmt.Sprintf("meanwhile-%d", n)); err != nil {
				stopped <- err
				return
			}
		}
	}()
	host.sh(t, places.Replace(blocks[0][1]))
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatalf("the backup disturbed the work: %v", err)
	}
	if got := c.ConfigGet(t.Context(), "auto-aof-rewrite-percentage").Val()["auto-aof-rewrite-percentage"]; got != "100" {
		t.Errorf("it rewrites its file at %s %%", got)
	}
	for _, name := range []string{"after", "later"} {
		if err := record(name); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(filepath.Join(backups, "slipway-redis.tar.gz"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup: %v, %v; want that only its owner reads it", info, err)
	}

	said := host.sh(t, places.Replace(blocks[1][1]))
	if words := strings.Fields(said); len(words) == 0 || words[len(words)-1] != "2" {
		t.Errorf("the last command should count 2 jobs:\n%s", said)
	}
	entries, err := s.Entries(t.Context(), lease.Job.ID, 0)
	if err != nil || len(entries) == 0 || entries[0].Key != "before" {
		t.Fatalf("the journal: %v, %v", entries, err)
	}
	for _, e := range entries {
		if e.Key == "after" || e.Key == "later" {
			t.Errorf("%s was recorded after the backup and is there", e.Key)
		}
	}
	if err := record("after"); err != nil { // by whoever was at it
		t.Error(err)
	}
	if err := s.Done(t.Context(), lease); err != nil {
		t.Error(err)
	}
	lookUp(t, s, "b")
}

// The rights that docs/deploy.md gives a user of Redis are enough.
func TestTheRightsInRedisThatTheDocumentTells(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	r := queuetest.StartRedis(t)
	c := r.Client()
	defer c.Close() //nolint:errcheck // opened to look at
	var command []any
	for _, word := range strings.Fields(regexp.MustCompile("(?m)^ACL SETUSER .*$").FindString(string(page))) {
		command = append(command, word)
	}
	for _, do := range [][]any{command, {"ACL", "SETUSER", "default", "off"}} { // nobody else may do anything
		if err := c.Do(t.Context(), do...).Err(); err != nil {
			t.Fatalf("%v: %v", do, err)
		}
	}
	s := openRedis(t, "redis://slipway:PASSWORD@"+r.Addr(), t.TempDir())
	put(t, s, "a")
	lease, err := s.Claim(t.Context(), "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, "a", queue.Signal{ID: "g", Kind: "steer"})
	if err := s.Wait(t.Context(), queue.SignalsOf("a")); err != nil {
		t.Error(err)
	}
	if signals, err := s.Extend(t.Context(), lease); err != nil || len(signals) != 1 {
		t.Errorf("signals %v, %v", signals, err)
	}
	_, appended := s.Append(t.Context(), lease, queue.Entry{Key: "k", Kind: queue.Call})
	_, taken := s.Take(t.Context(), "b", 1, queue.Limit{{Max: 1, Per: time.Hour}})
	_, listed := s.List(t.Context(), queue.Query{Unfinished: true})
	if err := errors.Join(appended, taken, listed, s.Done(t.Context(), lease)); err != nil {
		t.Error(err)
	}
}

// A redisHost is where the commands are typed.
type redisHost struct{ bin string }

func newRedisHost(t *testing.T, addr, dir string) redisHost {
	t.Helper()
	h := redisHost{bin: t.TempDir()}
	_, port, _ := strings.Cut(addr, ":")
	pid := filepath.Join(t.TempDir(), "pid")
	start := fmt.Sprintf("redis-server --port %s --bind 127.0.0.1 --dir %s --save '' --appendonly yes --daemonize yes --pidfile %s --logfile %s", port, dir, pid, pid+".log")
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"redis-cli": fmt.Sprintf("exec %s -p %s \"$@\"", cli, port),
		"systemctl": "case \"$*\" in\nstop\\ redis-server) redis-cli SHUTDOWN NOSAVE ;;\nstart\\ redis-server) " + start + " ;;\n*) exit 64 ;;\nesac",
	} {
		if err := os.WriteFile(filepath.Join(h.bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := os.Stat(pid); err == nil {
			h.sh(t, "redis-cli SHUTDOWN NOSAVE")
		}
	})
	return h
}

func (h redisHost) sh(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-e", "-c", script)
	cmd.Env = []string{"PATH=" + h.bin + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}
