package queue_test

import (
	"bytes"
	"crypto/rand"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
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
	rule, _ := rulesOfTheDocs(t)
	r := queuetest.StartRedis(t, slices.Concat([]string{"--user"}, rule, ofTests)...)
	queuetest.Run(t, opens("redis://slipway:PASSWORD@"+r.Addr()))
	c := r.Client()
	defer c.Close() //nolint:errcheck // opened to look at
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	wantTagged(t, keys)
	smoke(t, "redis://slipway:PASSWORD@"+r.Addr()+"/1")
	wantUsed(t, r, rule)
}

// ofTests are the keys and channels that a user needs beside those of the docs
// where many stores of tests share a server.
var ofTests = []string{"~{test-*}:*", "&{test-*}:bell"}

// rulesOfTheDocs are the users that docs/deploy.md tells people to make.
func rulesOfTheDocs(t *testing.T) (ofRedis, ofSentinel []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^ACL SETUSER (slipway on >PASSWORD .*)$`).FindAllSubmatch(page, -1)
	if len(found) != 2 {
		t.Fatalf("docs/deploy.md makes %d users", len(found))
	}
	return strings.Fields(string(found[0][1])), strings.Fields(string(found[1][1]))
}

// wantUsed checks that nothing is allowed for no use.
func wantUsed(t *testing.T, r *queuetest.Redis, rule []string) {
	t.Helper()
	c := r.Client()
	defer c.Close() //nolint:errcheck // opened to look at
	stats, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := []string{"cluster|slots", "asking", "ping"} // a Cluster, one that moves slots, a connection that is quiet for seconds
	for _, word := range rule {
		name, granted := strings.CutPrefix(word, "+")
		if granted && !slices.Contains(elsewhere, name) && !strings.Contains(stats, "cmdstat_"+name+":") {
			t.Errorf("docs/deploy.md allows %s, which nothing needs", name)
		}
	}
}

// Who lacks a right is told which, before there is work.
func TestRedisOfAUserWhoLacksARight(t *testing.T) {
	rule, _ := rulesOfTheDocs(t)
	for name, c := range map[string]struct {
		taken []string // from the docs' rule
		given []string
		fails []string
	}{
		"a command of a script":     {taken: []string{"+zadd", "+hset"}, fails: []string{"may not run hset, zadd on keys {slipway}:*"}},
		"the scripts":               {taken: []string{"+evalsha"}, fails: []string{"'evalsha'"}},
		"what begins a new script":  {taken: []string{"+eval"}, fails: []string{"'eval'"}},
		"the first look":            {taken: []string{"+info"}, fails: []string{"'info'"}},
		"the clock":                 {taken: []string{"+time"}, fails: []string{"may not run time"}},
		"the keys":                  {taken: []string{"~{slipway}:*"}, given: []string{"~slipway:*"}, fails: []string{"NOPERM", "keys"}},
		"the channel":               {taken: []string{"&{slipway}:bell"}, fails: []string{"publish, subscribe"}},
		"nothing but the settings'": {taken: []string{"+config|get"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left := slices.DeleteFunc(slices.Clone(rule), func(word string) bool { return slices.Contains(c.taken, word) })
			r := queuetest.StartRedis(t, slices.Concat([]string{"--user"}, left, c.given)...)
			s, err := queue.OpenRedis(t.Context(), queue.RedisOptions{
				URL: "redis://slipway:PASSWORD@" + r.Addr(), Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
			})
			if err == nil {
				err = s.Close()
			}
			for _, want := range c.fails {
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "docs/deploy.md") {
					t.Errorf("%v does not say %q and docs/deploy.md", err, want)
				}
			}
			if len(c.fails) == 0 && err != nil {
				t.Error(err)
			}
		})
	}
}

// clusterNodes is how many a Cluster of the tests has: one, which refuses a script
// that touches a key of another slot as any does, and with SLIPWAY_SOAK=1 three,
// over which the stores of tests are spread.
func clusterNodes() int {
	if os.Getenv("SLIPWAY_SOAK") == "1" {
		return 3
	}
	return 1
}

// clusterURL names every node.
func clusterURL(nodes []*queuetest.Redis) string {
	others := url.Values{}
	for _, node := range nodes[1:] {
		others.Add("addr", node.Addr())
	}
	return "redis+cluster://slipway:PASSWORD@" + nodes[0].Addr() + "?" + others.Encode()
}

func TestRedisCluster(t *testing.T) {
	rule, _ := rulesOfTheDocs(t)
	nodes := queuetest.StartCluster(t, clusterNodes(), slices.Concat([]string{"--user"}, rule, ofTests)...)
	queuetest.Run(t, opens(clusterURL(nodes)))
	for _, node := range nodes {
		c := node.Client()
		defer c.Close() //nolint:errcheck // opened to look at
		if keys, err := c.DBSize(t.Context()).Result(); err != nil || keys < 10 {
			t.Errorf("%d keys are on %s, %v: the stores are not spread", keys, node.Addr(), err)
		}
	}
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
		"a Sentinel of two":    {url: "redis+sentinel://127.0.0.1:1?master_name=x&password=s3cret", fails: "before the @"},
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

// The node of a Cluster that has the store goes away while a worker has a step to
// record: the step waits for it.
func TestAStepOutlastsARestartOfItsNode(t *testing.T) {
	rule, _ := rulesOfTheDocs(t)
	nodes := queuetest.StartCluster(t, clusterNodes(), append([]string{"--user"}, rule...)...)
	s := openRedis(t, clusterURL(nodes), t.TempDir())
	put(t, s, "a")
	l, err := s.Claim(t.Context(), "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	r := nodes[slices.IndexFunc(nodes, func(node *queuetest.Redis) bool {
		c := node.Client()
		defer c.Close() //nolint:errcheck // opened to look at
		return c.DBSize(t.Context()).Val() > 0
	})]
	r.Kill()
	recorded := make(chan error)
	go func() {
		_, err := s.Append(t.Context(), l, queue.Entry{Key: "paid", Kind: queue.Call})
		recorded <- err
	}()
	r.Start()
	if err := <-recorded; err != nil {
		t.Fatal(err)
	}
	wantPaidOnce(t, s, l)
}
