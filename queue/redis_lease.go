package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Claim implements Store.
func (s *Redis) Claim(ctx context.Context, worker string, kinds ...string) (*Lease, error) {
	if err := s.locks.hold(ctx, worker, func() error { return s.expire(ctx, worker) }); err != nil {
		return nil, fmt.Errorf("claim a job: %w", err)
	}
	if len(kinds) == 0 {
		return nil, ErrEmpty
	}
	s.sweep(ctx)
	kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	args := append([]any{worker, s.home, s.lease.Microseconds(), maxCrashes, keepDeliveries.Microseconds()}, anys(kinds)...)
	got, err := readAnswer(s.run(ctx, claimScript, args...))
	if err == nil && !got.yes {
		return nil, ErrEmpty
	}
	var l *Lease
	if err == nil {
		l, err = readLease(got.rest[0])
	}
	if err != nil {
		return nil, fmt.Errorf("claim a job: %w", err)
	}
	return l, nil
}

func readLease(view any) (*Lease, error) {
	parts, ok := view.([]any)
	if !ok || len(parts) != 2 {
		return nil, fmt.Errorf("read a lease: %v is none", view)
	}
	j, fields, err := readFields(parts)
	if err != nil {
		return nil, err
	}
	until, err := strconv.ParseInt(fields["until"], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the lease of job %s: %w", j.ID, err)
	}
	crashes, err := strconv.Atoi(fields["crashes"])
	if err != nil {
		return nil, fmt.Errorf("read the lease of job %s: %w", j.ID, err)
	}
	return &Lease{Job: j, Attempt: j.Attempt, Worker: j.Worker, Until: fromMicros(until), Crashes: crashes, claim: fields["claimed"]}, nil
}

// fenceOf is how a script knows a lease.
func fenceOf(l *Lease) string { return fmt.Sprint(l.Attempt, " ", l.claim) }

// Extend implements Store.
func (s *Redis) Extend(ctx context.Context, l *Lease) ([]Signal, error) {
	until, signals, err := s.extend(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("extend the lease of job %s: %w", l.Job.ID, err)
	}
	l.Until, l.Seen = until, l.Seen+int64(len(signals))
	return signals, nil
}

// extend reads the signals behind those seen: they are numbered by their place.
func (s *Redis) extend(ctx context.Context, l *Lease) (until time.Time, signals []Signal, err error) {
	got, err := readAnswer(s.run(ctx, extendScript, l.Job.ID, fenceOf(l), s.lease.Microseconds(), l.Seen))
	if err != nil {
		return until, nil, err
	}
	if !got.yes {
		return until, nil, ErrLost
	}
	n, err := strconv.ParseInt(fmt.Sprint(got.rest[0]), 10, 64)
	if err != nil {
		return until, nil, err
	}
	stored, _ := got.rest[1].([]any)
	for _, one := range stored {
		var g Signal
		sent, body, err := unframe(one, &g)
		if err != nil {
			return until, nil, err
		}
		g.Sent, g.Body = sent, body
		signals = append(signals, g)
	}
	return fromMicros(n), signals, nil
}

// Done implements Store.
func (s *Redis) Done(ctx context.Context, l *Lease) error {
	return s.settle(ctx, finishScript, l, string(Done), "")
}

// Bury implements Store.
func (s *Redis) Bury(ctx context.Context, l *Lease, cause error) error {
	return s.settle(ctx, finishScript, l, string(Buried), text(cause))
}

// Park implements Store.
func (s *Redis) Park(ctx context.Context, l *Lease, until time.Time, cause error) error {
	return s.settle(ctx, parkScript, l, micros(until), charge(cause) > 0, text(cause), verdict(cause))
}

func (s *Redis) settle(ctx context.Context, script *redis.Script, l *Lease, how ...any) error {
	settled, err := s.insist(ctx, script, append([]any{l.Job.ID, fenceOf(l), l.Seen}, how...)...).Int64()
	if err == nil && settled == 0 {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("settle job %s: %w", l.Job.ID, err)
	}
	return nil
}
