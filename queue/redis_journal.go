package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Append implements Store.
func (s *Redis) Append(ctx context.Context, l *Lease, e Entry) (seq int64, err error) {
	if e.Key == "" {
		return 0, fmt.Errorf("record a step of job %s: it has no key", l.Job.ID)
	}
	key, progress, outcome := e.Key, e.Kind != Choice, e.Outcome
	e.Outcome, e.Seq = nil, 0
	step, err := frame(e, outcome)
	if err == nil {
		seq, err = s.insist(ctx, appendScript, l.Job.ID, fenceOf(l), key, progress, step).Int64()
	}
	switch {
	case err != nil:
	case seq == 0:
		err = ErrLost
	case seq < 0:
		err = ErrRecorded
	}
	if err != nil {
		return 0, fmt.Errorf("record %s of job %s: %w", key, l.Job.ID, err)
	}
	return seq, nil
}

// Entries implements Store.
func (s *Redis) Entries(ctx context.Context, jobID string, after int64) ([]Entry, error) {
	entries, err := s.entries(ctx, jobID, max(after, 0))
	if err != nil {
		return nil, fmt.Errorf("read the journal of job %s: %w", jobID, err)
	}
	return entries, nil
}

// entries reads a list, in which a step's number is its place.
func (s *Redis) entries(ctx context.Context, jobID string, after int64) (out []Entry, err error) {
	var known *redis.IntCmd
	var stored *redis.StringSliceCmd
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		known = p.Exists(ctx, s.prefix+"job:"+jobID)
		stored = p.LRange(ctx, s.prefix+"entries:"+jobID, after, -1)
		return nil
	})
	if err != nil {
		return nil, absent(ctx, err)
	}
	if known.Val() == 0 {
		return nil, ErrUnknown
	}
	for i, one := range stored.Val() {
		var e Entry
		at, outcome, err := unframe(one, &e)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", after+int64(i)+1, err)
		}
		if e.At.IsZero() {
			e.At = at
		}
		e.Seq, e.Outcome = after+int64(i)+1, outcome
		out = append(out, e)
	}
	return out, nil
}

// Take implements Store. As with SQLite the window is exact.
func (s *Redis) Take(ctx context.Context, bucket string, n int64, limit Limit) (wait time.Duration, err error) {
	switch {
	case limit.closes():
		return s.take(ctx, bucket, 0, limit[0].Per)
	case len(limit) == 0 && n == 0:
		return s.take(ctx, bucket, 0, 0)
	}
	var longest time.Duration
	rates := []any{}
	for _, r := range limit {
		if n > r.Max && n > 0 {
			return 0, fmt.Errorf("take %d from %s: never possible, the limit is %d per %s", n, bucket, r.Max, r.Per)
		}
		longest = max(longest, r.Per)
		rates = append(rates, r.Max, ceilMicros(r.Per))
	}
	if n == 0 || n > 0 && len(limit) == 0 {
		return 0, nil
	}
	return s.take(ctx, bucket, n, longest, rates...)
}

// take runs the script: 0 units for a time close the bucket, and for none ask.
func (s *Redis) take(ctx context.Context, bucket string, n int64, longest time.Duration, rates ...any) (time.Duration, error) {
	us, err := s.run(ctx, takeScript, append([]any{bucket, n, ceilMicros(longest)}, rates...)...).Int64()
	if err != nil {
		return 0, fmt.Errorf("take %d from %s: %w", n, bucket, err)
	}
	return time.Duration(us) * time.Microsecond, nil
}
