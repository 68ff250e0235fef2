package main

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
)

// The server as an operator starts it: it listens, refuses what is not signed,
// and drains when it is told to.
func TestServe(t *testing.T) {
	t.Parallel()
	sim := schema.Start(t, githubsim.Options{})
	made, err := sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Secret: hookSecret, WebhookURL: "http://127.0.0.1:1/webhook"})
	must(t, err)
	key := filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(key, []byte(made.PrivateKey), 0o600))
	term := newTerminal(t,
		"SLIPWAY_GITHUB_APP_ID="+strconv.FormatInt(made.ID, 10), "SLIPWAY_GITHUB_PRIVATE_KEY_FILE="+key,
		"SLIPWAY_GITHUB_WEBHOOK_SECRETS="+hookSecret, "SLIPWAY_GITHUB_BASE_URL="+sim.URL()+"/")
	cmd := term.command("serve", "--listen", "127.0.0.1:0", "--verbose")
	pipe, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	var said strings.Builder
	lines, webhook := bufio.NewScanner(pipe), ""
	for webhook == "" && lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		webhook = regexp.MustCompile(`http://127\.0\.0\.1:\d+/webhook`).FindString(lines.Text())
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			said.WriteString(lines.Text() + "\n")
		}
	}()
	if webhook == "" {
		<-read
		t.Fatalf("serve: %v\n%s", cmd.Wait(), &said)
	}
	s := &server{T: t, sim: sim, url: webhook}
	if status, answer := s.post("11111111-1111-4111-8111-111111111111", sign("another secret", nil), strings.NewReader("")); status != http.StatusUnauthorized {
		t.Errorf("status %d: %s", status, answer)
	}
	if status, answer := s.post("11111111-1111-4111-8111-111111111111", sign(hookSecret, []byte("{}")), strings.NewReader("{}")); status != http.StatusAccepted {
		t.Errorf("status %d: %s", status, answer)
	}
	start := time.Now()
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	<-read
	if err := cmd.Wait(); err != nil {
		t.Errorf("serve: %v\n%s", err, &said)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	if strings.Contains(said.String(), hookSecret) || !strings.Contains(said.String(), "status=401") {
		t.Errorf("the log:\n%s", &said)
	}
}
