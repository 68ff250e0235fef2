package runtime

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// minSecret keeps short values, which occur by chance, from being replaced.
const minSecret = 6

// A substitution is a text that is not to be shown, and what stands for it.
type substitution struct{ from, to string }

// newReplacer replaces each text as it is and as JSON spells it, the longest
// first: one may begin with another.
func newReplacer(subs []substitution) *strings.Replacer {
	subs = slices.SortedStableFunc(slices.Values(subs), func(a, b substitution) int {
		return cmp.Compare(len(b.from), len(a.from))
	})
	var pairs []string
	for _, s := range subs {
		if len(s.from) < minSecret {
			continue
		}
		pairs = append(pairs, s.from, s.to)
		if quoted := quoteInner(s.from); quoted != s.from {
			pairs = append(pairs, quoted, quoteInner(s.to))
		}
	}
	return strings.NewReplacer(pairs...)
}

// A redactor hides secrets in what a run shows.
type redactor struct{ replace *strings.Replacer }

// newRedactor hides the values of env, which are of the form KEY=value, except
// the shortest.
func newRedactor(env []string) *redactor {
	var subs []substitution
	for _, entry := range env {
		key, secret, _ := strings.Cut(entry, "=")
		subs = append(subs, substitution{secret, "[" + key + "]"})
	}
	return &redactor{replace: newReplacer(subs)}
}

func (r *redactor) text(s string) string { return r.replace.Replace(s) }

func (r *redactor) raw(m json.RawMessage) json.RawMessage {
	if len(m) == 0 {
		return m
	}
	return json.RawMessage(r.replace.Replace(string(m)))
}

// maxShown is how many bytes of text an Event has at most: it is for people, and
// as JSON it can take six times as much and several copies of that.
const maxShown = 64 << 10

func (r *redactor) event(e Event) Event {
	e.Text, e.Input = shown(r.text(e.Text)), r.raw(e.Input)
	return e
}

// shown cuts what nobody reads to its end, and says so.
func shown(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + fmt.Sprintf("… (%d more bytes)", len(text)-maxShown)
}

func (r *redactor) result(res Result) Result {
	res.Text, res.Output = r.text(res.Text), r.raw(res.Output)
	return res
}

// quoteInner returns s as it is spelled inside a JSON string.
func quoteInner(s string) string {
	quoted, err := json.Marshal(s)
	if err != nil {
		return s
	}
	return string(quoted[1 : len(quoted)-1])
}
