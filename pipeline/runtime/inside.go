package runtime

import (
	"context"
	"encoding/json"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// A Guard bounds a run that has no process of its own, by the same clocks and
// with the same words as those that have one. Its methods are for the goroutine
// of the run.
type Guard struct {
	caller, run context.Context // of one Run, which owns the guard
	watch       *watch
}

// NewGuard starts to watch a run of c and returns the context to run it with.
// The caller ends the guard.
func NewGuard(ctx context.Context, c Call) (context.Context, *Guard) {
	run, w := newWatch(ctx, c)
	return run, &Guard{caller: ctx, run: run, watch: w}
}

// Pause stops the clock of silence while the run does work of its own.
func (g *Guard) Pause() { g.watch.pause() }

// Alive starts the clock of silence anew.
func (g *Guard) Alive() { g.watch.alive() }

// End stops the clocks.
func (g *Guard) End() { g.watch.end() }

// Verdict turns err into what Run returns: the cause of the caller's context as
// it is, else what the guard ended the run for, else err.
func (g *Guard) Verdict(err error) error {
	if err == nil {
		return nil
	}
	if g.run.Err() == nil {
		return err
	}
	return verdict(g.caller, g.run, "", err)
}

// A Redactor hides secrets in what a run shows.
type Redactor struct{ hide *redactor }

// NewRedactor hides the values of secrets, which are of the form name=value and
// shown as [name].
func NewRedactor(secrets []string) *Redactor { return &Redactor{hide: newRedactor(secrets)} }

// Text returns s without secrets.
func (r *Redactor) Text(s string) string { return r.hide.text(s) }

// Event returns e without secrets.
func (r *Redactor) Event(e Event) Event { return r.hide.event(e) }

// Result returns res without secrets.
func (r *Redactor) Result(res Result) Result { return r.hide.result(res) }

// Classify says what an error of a model's API means, by its HTTP status (0 when
// there was no answer) and its words.
func Classify(status int, words string) Class { return classify(status, words) }

// Writable lists the directories that a process of c may write.
func Writable(c Call) []string { return writable(c) }

// ErrOutput is the failure of a run that said more than one may.
func ErrOutput() *Error { return errTooMuch() }

// MaxOutput bounds what one run may say, in bytes.
const MaxOutput = sandbox.DefaultMaxOutput

// Micros reads an amount of dollars as micro-dollars. known is false where
// there is none, or one that cannot be.
func Micros(amount json.Number) (micros int64, known bool) {
	var d dollars
	if amount == "" || d.add(amount) != nil {
		return 0, false
	}
	micros, err := d.micros()
	return micros, err == nil
}
