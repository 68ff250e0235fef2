package coding

import (
	"encoding/json"
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

func wantNotIn(t *testing.T, text, unwanted string) {
	t.Helper()
	if strings.Contains(text, unwanted) {
		t.Errorf("contains %q:\n%s", unwanted, text)
	}
}

// asJSON is a result as a journal keeps it: an empty list is none.
func asJSON(t *testing.T, r Result) string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
