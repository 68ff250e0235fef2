package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/gowebpki/jcs"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// A question is what a call is about, without the words that it is asked in.
type question struct {
	Role   string     `json:"role"`
	Prompt string     `json:"prompt"` // digest of the prompt file
	Input  any        `json:"input"`  // of the role's type
	Model  string     `json:"model"`
	Effort string     `json:"effort,omitempty"`
	Repair *complaint `json:"repair,omitempty"` // of a repair turn
}

// A complaint is a runtime.Repair whose previous answer, where it is JSON, is
// the value and not its spelling.
type complaint struct {
	Previous any      `json:"previous"`
	Errors   []string `json:"errors"`
}

func complain(r *runtime.Repair) *complaint {
	if json.Valid([]byte(r.Previous)) {
		return &complaint{Previous: json.RawMessage(r.Previous), Errors: r.Errors}
	}
	return &complaint{Previous: r.Previous, Errors: r.Errors}
}

// of is the question as it is asked of a target.
func (q question) of(t Target) question {
	q.Model, q.Effort = t.Model, t.Effort
	return q
}

// digest names the question: sha256: and the hash of its canonical JSON (RFC
// 8785), for audit and for strict replay.
func (q question) digest() (string, error) {
	text, err := json.Marshal(q)
	if err == nil {
		text, err = jcs.Transform(text)
	}
	if err != nil {
		return "", fmt.Errorf("name what %s is asked: %w", q.Role, err)
	}
	return digestOf(text), nil
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}
