package sandbox

import (
	"bytes"
	"cmp"
	"io"
	"slices"
)

// redacted stands where a secret stood.
var redacted = []byte("[redacted]")

// A Redactor passes on what is written to it with the secrets replaced, also one
// that arrives in pieces. It holds back no more than could be the beginning of a
// secret, until the next Write, Flush or Close. It is for one writer at a time.
type Redactor struct {
	to      io.Writer
	secrets [][]byte
	held    []byte
}

// NewRedactor returns a Redactor that writes to w. Empty secrets are ignored.
func NewRedactor(w io.Writer, secrets ...string) *Redactor {
	r := &Redactor{to: w}
	for _, s := range secrets {
		if s != "" {
			r.secrets = append(r.secrets, []byte(s))
		}
	}
	return r
}

// Write takes all of p or returns the error of the writer behind.
func (r *Redactor) Write(p []byte) (int, error) {
	r.held = append(r.held, p...)
	if err := r.pass(r.pending()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what is held back.
func (r *Redactor) Flush() error { return r.pass(len(r.held)) }

// Close is Flush. It does not close the writer behind.
func (r *Redactor) Close() error { return r.Flush() }

// pending is where in held the first possible beginning of a secret is, whose end
// has not come yet.
func (r *Redactor) pending() int {
	at := len(r.held)
	for _, s := range r.secrets {
		for n := min(len(s)-1, len(r.held)); n > 0; n-- {
			if bytes.HasSuffix(r.held, s[:n]) {
				at = min(at, len(r.held)-n)
				break
			}
		}
	}
	return at
}

// pass writes held up to end, or up to a secret that reaches beyond end.
func (r *Redactor) pass(end int) error {
	var out []byte
	from := 0
	for _, found := range r.find() {
		if found.end > end {
			end = min(end, found.start)
			break
		}
		out = append(append(out, r.held[from:found.start]...), redacted...)
		from = found.end
	}
	out = append(out, r.held[from:end]...)
	r.held = slices.Clone(r.held[end:])
	if len(out) == 0 {
		return nil
	}
	_, err := r.to.Write(out)
	return err
}

type span struct{ start, end int }

// find returns where secrets are in held, in order, those that overlap as one.
func (r *Redactor) find() []span {
	var all []span
	for _, s := range r.secrets {
		for from := 0; ; {
			i := bytes.Index(r.held[from:], s)
			if i < 0 {
				break
			}
			all = append(all, span{from + i, from + i + len(s)})
			from += i + 1
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.start-b.start, b.end-a.end) })
	var merged []span
	for _, s := range all {
		if last := len(merged) - 1; last >= 0 && s.start < merged[last].end {
			merged[last].end = max(merged[last].end, s.end)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}
