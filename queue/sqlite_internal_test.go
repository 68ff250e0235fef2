package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// Changes that wait while the writer is busy share the next commit.
func TestAChangeThatFailsDoesNotFailItsNeighbours(t *testing.T) {
	s, err := OpenSQLite(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	insert := func(i int) func(*tx) error {
		return func(t *tx) error {
			_, err := insertJob(t, Job{ID: fmt.Sprint(i), Kind: "k"}, s.now())
			return err
		}
	}
	refused := errors.New("refused after it had written")
	cancelled, cancel := context.WithCancel(t.Context())
	batch := []*request{}
	for i := range 30 {
		r := &request{ctx: t.Context(), do: insert(i), done: make(chan error, 1)}
		switch i % 3 {
		case 1:
			r.do = func(t *tx) error { return errors.Join(insert(i)(t), refused) }
		case 2:
			r.ctx = cancelled
		}
		batch = append(batch, r)
	}
	cancel()
	busy, release := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		err := s.write(t.Context(), func(*tx) error {
			close(busy)
			<-release
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-busy
	for _, r := range batch {
		all.Go(func() { s.requests <- r })
	}
	close(release)
	all.Wait()
	for i, r := range batch {
		if err, want := <-r.done, []error{nil, refused, context.Canceled}[i%3]; !errors.Is(err, want) {
			t.Errorf("change %d: %v, want %v", i, err, want)
		}
	}
	jobs, err := s.List(t.Context(), Query{})
	if err != nil || len(jobs) != 10 {
		t.Errorf("%d jobs, %v; want the 10 that were not refused", len(jobs), err)
	}
}

func TestBell(t *testing.T) {
	b := newBell()
	rung := func(w *waiter) bool {
		defer b.leave(w)
		select {
		case <-w.rung:
			return true
		default:
			return false
		}
	}
	one, two, other := b.listen([]string{"a", "b"}), b.listen([]string{"b"}), b.listen([]string{"c"})
	b.ring("x", "b")
	if got := []bool{rung(one), rung(two), rung(other)}; !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("rung: %v, want those who listen to b", got)
	}
	if rung(b.listen([]string{"b"})) {
		t.Error("a ring that was heard rang again")
	}
	b.ring("b")
	b.ring("b")
	if got := []bool{rung(b.listen([]string{"b"})), rung(b.listen([]string{"b"}))}; !slices.Equal(got, []bool{true, false}) {
		t.Errorf("missed rings: %v, want them to wake the next waiter, once", got)
	}
	if !rung(b.listen([]string{"x"})) || len(b.topics) != 0 {
		t.Errorf("%d topics are left, want none", len(b.topics))
	}
	for i := range 3 * maxMissed {
		b.ring(fmt.Sprint(i))
	}
	if len(b.topics) > maxMissed+1 {
		t.Errorf("%d missed rings are remembered", len(b.topics))
	}
}
