package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// A worker takes up what is in Redis, drains when it is told to, and the other
// verbs see the same store.
func TestWorker(t *testing.T) {
	t.Parallel()
	r := queuetest.StartRedis(t)
	store, err := queue.OpenRedis(t.Context(), queue.RedisOptions{URL: r.URL(), Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	ping, err := json.Marshal(inbox.Delivery{Event: "ping", Body: json.RawMessage(`{"zen":"Design for failure.","hook_id":1}`)})
	must(t, err)
	_, _, err = store.Put(t.Context(), queue.Job{ID: "11111111-1111-4111-8111-111111111111", Kind: inbox.Kind, Payload: ping})
	must(t, err)

	sim := schema.Start(t, githubsim.Options{})
	made, err := sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Secret: hookSecret, WebhookURL: "http://127.0.0.1:1/webhook"})
	must(t, err)
	key := filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(key, []byte(made.PrivateKey), 0o600))
	term := newTerminal(t,
		"SLIPWAY_GITHUB_APP_ID="+strconv.FormatInt(made.ID, 10), "SLIPWAY_GITHUB_PRIVATE_KEY_FILE="+key,
		"SLIPWAY_GITHUB_BASE_URL="+sim.URL()+"/")
	cmd := term.command("worker", "--redis", r.URL(), "--slots", "3", "--listen", "127.0.0.1:0")
	pipe, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := bufio.NewScanner(pipe)
	if !lines.Scan() || !strings.Contains(lines.Text(), "3 builds at a time") {
		t.Errorf("the worker says %q", lines.Text())
	}
	until(t, 20*time.Second, "the delivery is not handled", func() bool {
		jobs, err := store.List(t.Context(), queue.Query{Kinds: []string{inbox.Kind}})
		must(t, err)
		return len(jobs) == 1 && jobs[0].State == queue.Done
	})
	_, address, _ := strings.Cut(lines.Text(), "probes at ")
	probed := func(want map[string]int) {
		t.Helper()
		for path, status := range want {
			answer, err := http.Get(address + path)
			must(t, err)
			must(t, answer.Body.Close())
			if answer.StatusCode != status {
				t.Errorf("%s answers %d, want %d", path, answer.StatusCode, status)
			}
		}
	}
	probed(map[string]int{"/healthz": 200, "/readyz": 200, "/webhook": 404})
	r.Stop() // which is no reason to restart anything
	probed(map[string]int{"/healthz": 200, "/readyz": 503})
	r.Continue()
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
		t.Errorf("the worker says: %s", lines.Text())
	}
	must(t, cmd.Wait())

	_, _, err = store.Put(t.Context(), queue.Job{ID: "b-00000001", Kind: pipeline.KindBuild, Payload: json.RawMessage(`{}`)})
	must(t, err)
	seeing := newTerminal(t, "SLIPWAY_REDIS_URL="+r.URL())
	for _, args := range [][]string{{"list"}, {"status", "b-00000001"}, {"cancel", "b-00000001"}} {
		if end := seeing.slipway(args...); end.code != 0 {
			t.Errorf("%v ended with %d: %s", args, end.code, end.err)
		}
	}
	if end := newTerminal(t).slipway("status", "b-00000001"); end.code != 2 {
		t.Errorf("without Redis it is there too: %+v", end)
	}
	l, err := store.Claim(t.Context(), "test", pipeline.KindBuild)
	must(t, err)
	if signals, err := store.Extend(t.Context(), l); err != nil || len(signals) != 1 || signals[0].Kind != pipeline.CancelSignal {
		t.Errorf("signals %+v, %v; want that it is cancelled", signals, err)
	}
}

func TestAWorkerThatCannotStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
		code int
	}{
		"without Redis":                  {nil, "redis_url", 2},
		"with a password for all to see": {[]string{"--redis", "redis://:s3cret@127.0.0.1:1"}, "SLIPWAY_REDIS_URL", 2},
		"with a Sentinel's password":     {[]string{"--redis", "redis+sentinel://127.0.0.1:1?master_name=x&sentinel_password=s3cret"}, "SLIPWAY_REDIS_URL", 2},
		"with no slots":                  {[]string{"--redis", "redis://127.0.0.1:1", "--slots", "0"}, "--slots 0", 2},
		"with Redis away":                {[]string{"--redis", "redis://127.0.0.1:1"}, "connection refused", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := newTerminal(t).slipway(append([]string{"worker"}, c.args...)...)
			if end.code != c.code || !strings.Contains(end.err, c.want) || strings.Contains(end.err, "s3cret") {
				t.Errorf("exit %d, want %d and %q: %s", end.code, c.code, c.want, end.err)
			}
		})
	}
}

// What may lose work is said where people look: by whoever begins to work, and by
// the doctor with what to do about it.
func TestARedisThatMayLoseWork(t *testing.T) {
	t.Parallel()
	r := queuetest.StartRedis(t, "--appendonly", "no", "--appendfsync", "no", "--maxmemory-policy", "allkeys-lru")
	term := newTerminal(t, "SLIPWAY_REDIS_URL="+r.URL())
	for verb, what := range map[string]func(end typed) string{
		"worker": func(end typed) string { return end.err },
		"doctor": func(end typed) string { return end.out },
	} {
		end := term.slipway(verb)
		for _, want := range []string{"maxmemory-policy is allkeys-lru", "appendonly is no, not yes", "appendfsync is no"} {
			if !strings.Contains(what(end), want) {
				t.Errorf("%s does not say %q: %s%s", verb, want, end.out, end.err)
			}
		}
		if verb == "doctor" && (!strings.Contains(end.out, "docs/deploy.md") || !strings.Contains(end.out, "the Redis of redis_url answers")) {
			t.Errorf("the doctor does not say what to do: %s", end.out)
		}
	}
}
