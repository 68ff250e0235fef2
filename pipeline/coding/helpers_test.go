package coding

import (
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/agent"
)

func render[In, Out any](t *testing.T, r agent.Role[In, Out], in In) (system, prompt string) {
	t.Helper()
	system, prompt, err := agent.Render(r, in)
	if err != nil {
		t.Fatal(err)
	}
	return system, prompt
}

func wantIn(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("does not contain %q:\n%s", want, text)
	}
}
