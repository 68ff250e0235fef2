package queue

import (
	"context"
	"errors"
	"time"
)

// OpenSQLiteAt opens a store whose clock is a test's.
func OpenSQLiteAt(ctx context.Context, dir string, now func() time.Time) (*SQLite, error) {
	return openSQLite(ctx, dir, leaseTime, now)
}

// OpenRedisAt opens a store under a prefix of its own, whose clock a test moves,
// without a look at what kind of Redis it is: miniredis cannot say.
func OpenRedisAt(ctx context.Context, o RedisOptions, prefix string, shift func() time.Duration) (*Redis, error) {
	s, err := dialRedis(o)
	if err != nil {
		return nil, err
	}
	s.prefix, s.shift = prefix, shift
	return s, s.start(ctx, o.Dir)
}

// OpenRedisFor opens as OpenRedis does, for leases of a test's length.
func OpenRedisFor(ctx context.Context, o RedisOptions, lease time.Duration) (*Redis, error) {
	s, err := OpenRedis(ctx, o)
	if err != nil {
		return nil, err
	}
	s.lease = lease
	return s, nil
}

// Kill ends the store as kill -9 ends its process: the kernel frees the locks,
// and nobody is told.
func (s *Redis) Kill() error {
	s.locks.mu.Lock()
	var errs []error
	for worker, f := range s.locks.held {
		errs = append(errs, f.Close())
		delete(s.locks.held, worker)
	}
	s.locks.mu.Unlock()
	return errors.Join(append(errs, s.Close())...)
}

// RedisScripts are the sources of the scripts by name.
var RedisScripts = map[string]string{
	"common": commonLua, "put": putLua, "claim": claimLua, "extend": extendLua, "finish": finishLua, "park": parkLua,
	"send": sendLua, "append": appendLua, "take": takeLua, "list": listLua, "expire": expireLua,
}

const (
	LeaseTime   = leaseTime
	SkewRefused = skewRefused
)

var JudgeClock = judgeClock
