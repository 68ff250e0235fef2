package queue_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// opens returns what opens a store of its own, with a prefix that no other test
// of the server has.
func opens(url string) func(t *testing.T) queuetest.Opened {
	return func(t *testing.T) queuetest.Opened {
		dir, prefix := t.TempDir(), "{test-"+rand.Text()+"}:"
		var shift atomic.Int64
		open := func(t *testing.T) *queue.Redis {
			t.Helper()
			o := queue.RedisOptions{URL: url, Dir: dir, Log: slog.New(slog.DiscardHandler)}
			s, err := queue.OpenRedisAt(t.Context(), o, prefix, func() time.Duration { return time.Duration(shift.Load()) })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			return s
		}
		s := open(t)
		return queuetest.Opened{
			Store:   s,
			Lease:   queue.LeaseTime,
			Advance: func(d time.Duration) { shift.Add(int64(d)) },
			Second:  func(t *testing.T) queue.Store { return open(t) },
			Crash: func(t *testing.T) queue.Store {
				if err := s.Kill(); err != nil {
					t.Fatal(err)
				}
				return open(t)
			},
		}
	}
}

// miniature starts the stand-in in this process, which lacks a word that a
// client looks for.
func miniature(t *testing.T) *miniredis.Miniredis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestRedisInMiniature(t *testing.T) {
	m := miniature(t)
	queuetest.Run(t, opens("redis://"+m.Addr()))
	wantTagged(t, m.Keys())
}

func TestRedis(t *testing.T) {
	r := queuetest.StartRedis(t)
	queuetest.Run(t, opens(r.URL()))
	c := r.Client()
	defer c.Close() //nolint:errcheck // opened to look at
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	wantTagged(t, keys)
}

// A node of a cluster refuses a script that touches a key of another slot.
func TestRedisCluster(t *testing.T) {
	r := queuetest.StartRedis(t, "--cluster-enabled", "yes")
	c := r.Client()
	defer c.Close() //nolint:errcheck // opened to look at
	if err := c.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:ok") {
		if t.Context().Err() != nil {
			t.Fatal("the cluster does not come up")
		}
	}
	queuetest.Run(t, opens("redis+cluster://"+r.Addr()))
}

// wantTagged checks that every key begins with one tag in braces.
func wantTagged(t *testing.T, keys []string) {
	t.Helper()
	if len(keys) < 100 {
		t.Errorf("only %d keys", len(keys))
	}
	tagged := regexp.MustCompile(`^\{test-[A-Z0-9]+\}:[a-z-]+:`)
	for _, k := range keys {
		if !tagged.MatchString(k) {
			t.Errorf("key %q lies in a slot of its own", k)
		}
	}
}

// Every command in the scripts that names a key names one made by key(), and
// nothing but key() makes one.
func TestEveryKeyOfTheScriptsCarriesTheTag(t *testing.T) {
	calls := regexp.MustCompile(`redis\.call\('([A-Z]+)'(?:, ([^,)(]+(?:\([^)]*)?))?`)
	made := map[string]bool{ // local names for what key() returns
		"bucket": true, "among": true,
	}
	found := 0
	for name, source := range queue.RedisScripts {
		for _, call := range calls.FindAllStringSubmatch(source, -1) {
			found++
			switch command, first := call[1], call[2]; {
			case command == "TIME":
			case command == "PUBLISH":
				if first != "prefix .. 'bell'" {
					t.Errorf("%s: %s speaks on %s", name, command, first)
				}
			case !strings.HasPrefix(first, "key(") && !made[first]:
				t.Errorf("%s: %s touches %q, which key() did not make", name, command, first)
			}
		}
		if name != "common" && strings.Contains(source, "prefix") {
			t.Errorf("%s makes keys by itself", name)
		}
	}
	if found < 50 {
		t.Errorf("only %d calls were found", found)
	}
}

func TestOpeningRedis(t *testing.T) {
	r := queuetest.StartRedis(t, "--requirepass", "s3cret", "--user", "slipway", "on", ">s3same", "~{slipway}:*", "&{slipway}:*",
		"+@all", "-@dangerous", "+info", "+config|get", "-flushall")
	weak := queuetest.StartRedis(t, "--appendonly", "no", "--maxmemory-policy", "allkeys-lru")
	addr := r.Addr()
	for name, c := range map[string]struct{ url, fails, warns string }{
		"a password":           {url: "redis://:s3cret@" + addr},
		"an ACL user":          {url: "redis://slipway:s3same@" + addr},
		"a wrong password":     {url: "redis://:wrong@" + addr, fails: "WRONGPASS"},
		"no password":          {url: "redis://" + addr, fails: "NOAUTH"},
		"nobody there":         {url: "redis://:s3cret@127.0.0.1:1", fails: "refused"},
		"forgetful":            {url: weak.URL(), warns: "appendonly is no"},
		"evicting":             {url: weak.URL(), warns: "maxmemory-policy is allkeys-lru"},
		"hostile":              {url: "redis://:s3cret@%zz", fails: "invalid URL escape"},
		"a Sentinel of nobody": {url: "redis+sentinel://:s3cret@127.0.0.1:1", fails: "master_name"},
		"no Redis":             {url: "http://:s3cret@127.0.0.1:1", fails: "redis://"},
		"an unknown form":      {url: "redis+x://:s3cret@127.0.0.1:1", fails: "unknown form"},
		"an unknown option":    {url: "redis://127.0.0.1:1?what=1", fails: "what"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s, err := queue.OpenRedis(t.Context(), queue.RedisOptions{URL: c.url, Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
			said := log.String()
			if err != nil {
				said += err.Error()
			} else {
				put(t, s, rand.Text())
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if strings.Contains(said, "s3cret") {
				t.Errorf("the password was told: %s", said)
			}
			if (c.fails != "") != (err != nil) || !strings.Contains(said, c.fails) || !strings.Contains(said, c.warns) {
				t.Errorf("got %q, want %q or %q in it", said, c.fails, c.warns)
			}
			if c.fails == "" && c.warns == "" && said != "" {
				t.Errorf("warnings of a sound Redis: %s", said)
			}
		})
	}
}

func TestRedisBehindASentinel(t *testing.T) {
	r := queuetest.StartRedis(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, "port %s\nbind 127.0.0.1\nsentinel monitor store %s 1\n", port, strings.Replace(r.Addr(), ":", " ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", conf, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for ctx := t.Context(); ; {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	url := "redis+sentinel://" + addr + "?master_name=store"
	s, err := queue.OpenRedis(t.Context(), queue.RedisOptions{URL: url, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // nothing is left to settle
	put(t, s, "a")
	lookUp(t, s, "a")
}
