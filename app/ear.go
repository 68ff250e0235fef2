package app

import (
	"errors"
	"slices"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

// An ear brings the signals of a task to its run, in the pipeline's words. A run
// stops listening before it returns; what comes in between is not lost: the task
// is claimed again for it.
type ear struct {
	before []pipeline.Signal      // what was sent before the claim
	coming <-chan pipeline.Signal // that too, and what comes after
	shut   chan struct{}
	missed chan bool // whether something came that nobody took
}

// listen begins to listen. Whoever does ends it by handBack.
func listen(t *queue.Task) *ear {
	signals := make(chan pipeline.Signal)
	e := &ear{before: sentBefore(t), coming: signals, shut: make(chan struct{}), missed: make(chan bool, 1)}
	go func() {
		defer close(signals)
		e.missed <- e.pass(t.Signals(), signals)
	}()
	return e
}

// pass hands signals on until there is nobody to take them.
func (e *ear) pass(from <-chan queue.Signal, to chan<- pipeline.Signal) (missed bool) {
	for {
		select {
		case s, open := <-from:
			if !open {
				return false
			}
			select {
			case to <- pipeline.Signal{ID: s.ID, Kind: s.Kind, Body: s.Body}:
			case <-e.shut:
				return !slices.ContainsFunc(e.before, func(b pipeline.Signal) bool { return b.ID == s.ID })
			}
		case <-e.shut:
			return false
		}
	}
}

// handBack ends the listening and says what becomes of the task whose run
// returned err. One that waits or has ended is run again at once where it missed
// something.
func (e *ear) handBack(err error) error {
	close(e.shut)
	missed := <-e.missed
	_, waits := errors.AsType[*pipeline.Waiting](err)
	if missed && (err == nil || waits) {
		return queue.Later(time.Now(), nil)
	}
	return handBack(err)
}

// sentBefore are the signals that were sent before a claim, in the words of the
// pipeline.
func sentBefore(t *queue.Task) (before []pipeline.Signal) {
	for _, s := range t.Before() {
		before = append(before, pipeline.Signal{ID: s.ID, Kind: s.Kind, Body: s.Body})
	}
	return before
}
