package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

const (
	bashTimeout    = 120 * time.Second // of a command that names none
	maxBashTimeout = 600 * time.Second
	bashOutput     = 16 << 20 // bytes that a command may write
	bashShown      = 30_000   // bytes of that which the model gets
	bashGrace      = time.Second
)

const bashText = `Runs a command with bash, in your directory, in a sandbox. Each command starts anew: no variable and no directory change of one before
lasts, and nothing that it started goes on after it. It may take 120 seconds, or up to 600 as timeout says. Of long output the middle is cut.`

type bashInputs struct {
	Command string `json:"command" jsonschema:"what to run"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"seconds that it may take"`
}

func runBash(ctx context.Context, p *place, in bashInputs) result {
	if in.Command == "" {
		return failed("the command is empty")
	}
	limit := min(cmp.Or(time.Duration(max(in.Timeout, 0))*time.Second, bashTimeout), maxBashTimeout)
	out := &ends{most: bashShown}
	exit, err := p.box.Run(ctx, sandbox.Command{
		Args: []string{"bash", "-c", in.Command}, Dir: p.dir, Env: sandbox.Environ(p.home),
		Stdout: out, Stderr: out, Writable: p.writable, Readable: p.readable,
		Timeout: limit, MaxOutput: bashOutput, Grace: bashGrace,
	})
	switch {
	case errors.Is(err, sandbox.ErrTimeout):
		return failed("%s\n(it did not end within %s and was ended)", out, limit)
	case errors.Is(err, sandbox.ErrOutput):
		return failed("%s\n(it wrote more than %d MiB and was ended)", out, bashOutput>>20)
	case err != nil:
		return failed("%s\n(it could not be run to its end: %v)", out, err)
	case exit.Code < 0:
		return failed("%s\n(a signal ended it)", out)
	case exit.Code > 0:
		return failed("%s\n(exit code %d)", out, exit.Code)
	}
	return result{text: out.String()}
}

// ends keep the beginning and the end of what is written to them.
type ends struct {
	most int // bytes of both together

	mu    sync.Mutex
	head  []byte
	tail  []byte // up to twice what is kept, so that it is seldom moved
	total int
}

func (e *ends) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(b)
	e.total += n
	room := min(e.most/2-len(e.head), len(b))
	e.head = append(e.head, b[:room]...)
	e.tail = append(e.tail, b[room:]...)
	if half := e.most / 2; len(e.tail) > 2*half {
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-half:]...)
	}
	return n, nil
}

// String says how much is missing in the middle.
func (e *ends) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	tail := e.tail[max(0, len(e.tail)-e.most/2):]
	if left := e.total - len(e.head) - len(tail); left > 0 {
		return fmt.Sprintf("%s\n… (%d bytes are left out here) …\n%s", e.head, left, tail)
	}
	return string(e.head) + string(tail)
}
