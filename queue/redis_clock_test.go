package queue_test

import (
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

func TestHowFarClocksMayBeApart(t *testing.T) {
	for name, c := range map[string]struct {
		ahead, took     time.Duration
		warned, refused bool
	}{
		"in time":                 {ahead: 10 * time.Millisecond, took: 20 * time.Millisecond},
		"ahead":                   {ahead: 2 * time.Second, took: time.Millisecond, warned: true},
		"behind":                  {ahead: -2 * time.Second, took: time.Millisecond, warned: true},
		"behind as far as may be": {ahead: -queue.SkewRefused, warned: true},
		"ahead too far":           {ahead: queue.SkewRefused + 10*time.Millisecond, took: time.Millisecond, refused: true},
		"behind too far":          {ahead: -queue.SkewRefused - 10*time.Millisecond, took: time.Millisecond, refused: true},
		"a slow answer":           {ahead: 6 * time.Second, took: 6 * time.Second}, // it may have waited on its way there
		"a slow answer, warned":   {ahead: 6 * time.Second, took: 3 * time.Second, warned: true},
	} {
		t.Run(name, func(t *testing.T) {
			warning, err := queue.JudgeClock(c.ahead, c.took)
			if (warning != "") != c.warned || (err != nil) != c.refused {
				t.Errorf("got warning %q and error %v", warning, err)
			}
		})
	}
}
