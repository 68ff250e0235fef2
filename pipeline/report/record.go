package report

import (
	"encoding/json"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

// What stands around the debt in a pull request's body, unseen by readers.
const (
	recordStart = "<!-- slipway debt: "
	recordEnd   = " -->"
)

// WithDebtRecord adds the debt to a pull request's body in a form that
// ReadDebt can take from it again. A body without room for it stays as it is.
func WithDebtRecord(body string, items []debt.Item) string {
	text, err := json.Marshal(append([]debt.Item{}, items...)) // escapes < and >, so it cannot end the comment
	if err != nil {
		return body // strings always marshal
	}
	whole := strings.TrimRight(body, "\n") + "\n\n" + recordStart + string(text) + recordEnd + "\n"
	if runes(whole) > bodyLimit {
		return body
	}
	return whole
}

// ReadDebt takes the debt from a pull request's body. It is not ok when the
// body holds no record, or one that somebody changed.
func ReadDebt(body string) (items []debt.Item, ok bool) {
	at := strings.LastIndex(body, recordStart)
	if at < 0 {
		return nil, false
	}
	text, _, ended := strings.Cut(body[at+len(recordStart):], recordEnd)
	if !ended || json.Unmarshal([]byte(text), &items) != nil {
		return nil, false
	}
	return items, true
}
