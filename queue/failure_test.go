package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

func TestDecided(t *testing.T) {
	cause := errors.New("it rains")
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing failed": {nil, false},
		"any error":      {cause, false},
		"later":          {queue.Later(time.Now(), nil), true},
		"a turn":         {queue.Turn(time.Now(), cause), true},
		"never, wrapped": {fmt.Errorf("run: %w", queue.Never(cause)), true},
	} {
		if queue.Decided(c.err) != c.want {
			t.Errorf("%s: got %t", name, !c.want)
		}
	}
}
