package queue_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// withTLS are a server's arguments for TLS on a port of its own.
func withTLS(a *queuetest.Authority, port string, names ...string) []string {
	cert, key := a.Issue(names...)
	return []string{"--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", a.CA}
}

// smoke does with a store what a server and a worker on two hosts do.
func smoke(t *testing.T, url string) {
	t.Helper()
	server, worker := openRedis(t, url, t.TempDir()), openRedis(t, url, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, _, err := server.Put(ctx, queue.Job{ID: "a", Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	l, err := worker.Claim(ctx, "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Append(ctx, l, queue.Entry{Key: "step", Kind: queue.Call}); err != nil {
		t.Fatal(err)
	}
	rung := make(chan error)
	go func() { rung <- worker.Wait(ctx, queue.SignalsOf("a")) }()
	if err := server.Send(ctx, "a", queue.Signal{ID: "1", Kind: "cancel"}); err != nil {
		t.Fatal(err)
	}
	if err := <-rung; err != nil {
		t.Errorf("the bell was not heard: %v", err)
	}
	if signals, err := worker.Extend(ctx, l); err != nil || len(signals) != 1 {
		t.Errorf("signals %v, %v", signals, err)
	}
	if err := worker.Done(ctx, l); err != nil {
		t.Error(err)
	}
	lookUp(t, server, "a")
}

// secured is a Redis that speaks TLS at 127.0.0.1, by the name of localhost too,
// and wants to see a certificate.
func secured(t *testing.T, a *queuetest.Authority, args ...string) (port string) {
	t.Helper()
	port = queuetest.FreePort(t)
	queuetest.StartRedis(t, append(withTLS(a, port, "127.0.0.1", "localhost"), args...)...)
	return port
}

func TestRedisOverTLS(t *testing.T) {
	a := queuetest.NewAuthority(t, "the company's authority")
	cert, key := a.Issue("slipway")
	shown := "ca=" + a.CA + "&cert=" + cert + "&key=" + key
	for name, start := range map[string]func(t *testing.T) (address string){
		"one server": func(t *testing.T) string {
			port := secured(t, a)
			return "rediss://127.0.0.1:" + port + "?" + shown
		},
		"behind a Sentinel": func(t *testing.T) string {
			port := secured(t, a)
			over := queuetest.FreePort(t)
			var lines []string
			args := append(withTLS(a, over, "127.0.0.1"), "--tls-replication", "yes")
			for i := 0; i < len(args); i += 2 {
				lines = append(lines, strings.TrimPrefix(args[i], "--")+" "+args[i+1])
			}
			queuetest.StartSentinel(t, port, lines...)
			return "rediss+sentinel://127.0.0.1:" + over + "?master_name=" + queuetest.SentinelMaster + "&" + shown
		},
		"a Cluster": func(t *testing.T) string {
			port := queuetest.FreePort(t)
			queuetest.StartCluster(t, 1, append(withTLS(a, port, "127.0.0.1"), "--tls-cluster", "yes")...)
			return "rediss+cluster://127.0.0.1:" + port + "?" + shown
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			smoke(t, start(t))
		})
	}
}

func TestWhomRedisTLSTrusts(t *testing.T) {
	a, b := queuetest.NewAuthority(t, "the company's authority"), queuetest.NewAuthority(t, "somebody else")
	port := secured(t, a, "--tls-auth-clients", "optional")
	strict := queuetest.FreePort(t)
	queuetest.StartRedis(t, withTLS(a, strict, "127.0.0.1")...)
	cert, key := a.Issue("slipway")
	_, other := b.Issue("slipway")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := "rediss://:s3cret@127.0.0.1:" + port
	for name, c := range map[string]struct {
		url   string
		fails []string // in what it says; none: it opens
	}{
		"the authority is named":            {url: "rediss://127.0.0.1:" + port + "?ca=" + a.CA},
		"another name of the host":          {url: "rediss://localhost:" + port + "?ca=" + a.CA},
		"an unknown authority":              {at, []string{"127.0.0.1:" + port, "CN=127.0.0.1", "CN=the company's authority", "unknown authority", "ca=FILE"}},
		"another authority":                 {at + "?ca=" + b.CA, []string{"127.0.0.1:" + port, "CN=the company's authority", "ca=FILE"}},
		"a host of another name":            {"rediss://localhost:" + strict + "?ca=" + a.CA, []string{"localhost:" + strict, "wanted to match localhost", "name the host"}},
		"no certificate of ours is wanted":  {url: "rediss://127.0.0.1:" + port + "?ca=" + a.CA + "&cert=" + cert + "&key=" + key},
		"a certificate of ours is missing":  {"rediss://127.0.0.1:" + strict + "?ca=" + a.CA, []string{"certificate required"}},
		"a certificate without its key":     {at + "?cert=" + cert, []string{"cert= and key="}},
		"a key of another certificate":      {at + "?cert=" + cert + "&key=" + other, []string{"cert= and key=", "does not match"}},
		"no file":                           {at + "?ca=/nowhere/ca.pem", []string{"ca=", "/nowhere/ca.pem"}},
		"a file without a certificate":      {at + "?ca=" + empty, []string{"no certificate in PEM"}},
		"a path that depends on where":      {at + "?ca=ca.pem", []string{"absolute path"}},
		"an authority without TLS":          {"redis://127.0.0.1:1?ca=" + a.CA, []string{"rediss://"}},
		"nobody is looked at":               {at + "?skip_verify=true", []string{"skip_verify", "ca=FILE"}},
		"without TLS at a port that has it": {"redis://127.0.0.1:" + port, []string{"EOF"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := queue.OpenRedis(t.Context(), queue.RedisOptions{URL: c.url, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				put(t, s, name)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if (err != nil) != (len(c.fails) > 0) {
				t.Fatalf("got %v", err)
			}
			for _, want := range c.fails {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the password is told: %v", err)
			}
		})
	}
}
