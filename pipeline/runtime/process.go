package runtime

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

const (
	maxOutput = sandbox.DefaultMaxOutput // bytes of a run, both streams
	tailKept  = 8 << 10                  // bytes of stderr remembered
	tailShown = 2 << 10                  // bytes of stderr in an error
)

// An ended process, as runLines saw it.
type ended struct {
	Code   int
	Stderr string // the last of what it logged, redacted
}

// runLines runs cmd for c under watch and hands each line of its standard
// output to line, without its end, from one goroutine at a time. An error of
// line ends the process and is returned, as is a stall, a time-out, too much
// output, or the cause of ctx. A non-zero exit is no error here.
func runLines(ctx context.Context, box *sandbox.Box, cmd sandbox.Command, c Call, hide *redactor, line func([]byte) error) (ended, error) {
	run, w := newWatch(ctx, c)
	defer w.end()

	out := &lineWriter{watch: w, line: line}
	log := &tailWriter{}
	cmd.Stdout, cmd.Stderr = out, log
	cmd.MaxOutput = cmp.Or(cmd.MaxOutput, maxOutput)

	exit, err := box.Run(run, cmd)
	w.pause()
	if run.Err() == nil && err == nil { // else the last line was cut off, not written
		out.flush()
	}
	end := ended{Code: exit.Code, Stderr: hide.text(log.String())}
	if len(end.Stderr) > tailShown {
		end.Stderr = strings.ToValidUTF8("…"+end.Stderr[len(end.Stderr)-tailShown:], "")
	}
	return end, verdict(ctx, run, cmd.Args[0], err)
}

// A lineWriter cuts what is written into lines.
type lineWriter struct {
	watch  *watch
	line   func([]byte) error
	rest   []byte // an unfinished line
	failed bool
}

// Write takes everything also after a failure: a process that cannot write
// would not notice that it is to end.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.watch.pause()
	defer w.watch.alive()
	n := len(p)
	for !w.failed {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.rest = append(w.rest, p...)
			if len(w.rest) > maxOutput {
				w.fail(errTooMuch())
			}
			break
		}
		whole := p[:i]
		if len(w.rest) > 0 {
			whole = append(w.rest, whole...)
			w.rest = nil
		}
		w.handle(whole)
		p = p[i+1:]
	}
	return n, nil
}

// flush handles a last line that has no end.
func (w *lineWriter) flush() {
	if !w.failed && len(w.rest) > 0 {
		w.handle(w.rest)
		w.rest = nil
	}
}

func (w *lineWriter) handle(line []byte) {
	line = bytes.TrimRight(line, "\r")
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	if err := w.line(line); err != nil {
		w.fail(err)
	}
}

func (w *lineWriter) fail(err error) {
	w.failed, w.rest = true, nil
	w.watch.fail(err)
}

// A tailWriter remembers the end of what was written to it.
type tailWriter struct {
	kept []byte
	cut  bool
}

var _ io.Writer = (*tailWriter)(nil)

func (w *tailWriter) Write(p []byte) (int, error) {
	w.kept = append(w.kept, p...)
	if over := len(w.kept) - tailKept; over > 0 {
		w.kept = append(w.kept[:0], w.kept[over:]...)
		w.cut = true
	}
	return len(p), nil
}

// String returns whole lines only once something was cut away: half of a
// secret would not be recognized.
func (w *tailWriter) String() string {
	kept := w.kept
	if w.cut {
		_, kept, _ = bytes.Cut(kept, []byte("\n"))
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(kept), "\uFFFD"))
}
