package queue

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts: redis_common.lua before each.
var (
	//go:embed redis_common.lua
	commonLua string
	//go:embed redis_put.lua
	putLua string
	//go:embed redis_claim.lua
	claimLua string
	//go:embed redis_extend.lua
	extendLua string
	//go:embed redis_finish.lua
	finishLua string
	//go:embed redis_park.lua
	parkLua string
	//go:embed redis_send.lua
	sendLua string
	//go:embed redis_append.lua
	appendLua string
	//go:embed redis_take.lua
	takeLua string
	//go:embed redis_list.lua
	listLua string
	//go:embed redis_expire.lua
	expireLua string

	putScript    = redis.NewScript(commonLua + putLua)
	claimScript  = redis.NewScript(commonLua + claimLua)
	extendScript = redis.NewScript(commonLua + extendLua)
	finishScript = redis.NewScript(commonLua + finishLua)
	parkScript   = redis.NewScript(commonLua + parkLua)
	sendScript   = redis.NewScript(commonLua + sendLua)
	appendScript = redis.NewScript(commonLua + appendLua)
	takeScript   = redis.NewScript(commonLua + takeLua)
	listScript   = redis.NewScript(commonLua + listLua)
	expireScript = redis.NewScript(commonLua + expireLua)
)

// run runs a script once. The client sends it again under the same token when
// the connection breaks.
func (s *Redis) run(ctx context.Context, script *redis.Script, args ...any) *redis.Cmd {
	return s.call(ctx, script, rand.Text(), args)
}

// insist runs a script until Redis takes it or ctx ends: what is at stake is paid
// work, and a server that restarts comes back, as room on a full disk does.
func (s *Redis) insist(ctx context.Context, script *redis.Script, args ...any) *redis.Cmd {
	token := rand.Text()
	for {
		cmd := s.call(ctx, script, token, args)
		if !errors.Is(cmd.Err(), ErrAway) || ctx.Err() != nil {
			return cmd
		}
		s.log.Warn("Redis takes nothing, trying again", "err", cmd.Err())
		select {
		case <-ctx.Done():
			return cmd
		case <-s.closing:
			return cmd
		case <-time.After(storePause):
		}
	}
}

// passing are the refusals of a Redis that is there and changes nothing, as
// long as something lasts. A script meets them at its first write, never later.
var passing = []string{
	"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
	"MISCONF",    // its disk is full
	"OOM",        // its memory is
	"NOREPLICAS", // fewer than min-replicas-to-write
	"BUSY ",      // another's script runs
	"max number of clients reached",
}

// away reports whether an error says that Redis could not be asked, or takes
// nothing now.
func away(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		return slices.ContainsFunc(passing, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
	}
	return true
}

// absent adds ErrAway to an error that says so.
func absent(ctx context.Context, err error) error {
	if ctx.Err() != nil || !away(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrAway, err)
}

func (s *Redis) call(ctx context.Context, script *redis.Script, token string, args []any) *redis.Cmd {
	if err := ctx.Err(); err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	cmd := script.Run(ctx, s.client, []string{s.prefix}, append([]any{s.shift().Microseconds(), token}, args...)...)
	cmd.SetErr(absent(ctx, cmd.Err()))
	return cmd
}

// An answer of a script is an array that begins with 1 or 0.
type answer struct {
	yes  bool
	rest []any
}

func readAnswer(cmd *redis.Cmd) (answer, error) {
	got, err := cmd.Slice()
	if err != nil {
		return answer{}, err
	}
	yes, ok := got[0].(int64)
	if !ok {
		return answer{}, fmt.Errorf("read what Redis answered: it begins with %v", got[0])
	}
	return answer{yes == 1, got[1:]}, nil
}

// readJob reads what view in redis_common.lua returns: the fields of the job's
// hash, and its payload.
func readJob(view any) (Job, error) {
	parts, ok := view.([]any)
	if !ok || len(parts) != 2 {
		return Job{}, fmt.Errorf("read a job: %v is none", view)
	}
	j, _, err := readFields(parts)
	return j, err
}

func readFields(parts []any) (Job, map[string]string, error) {
	flat, _ := parts[0].([]any)
	fields := map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		fields[fmt.Sprint(flat[i])] = fmt.Sprint(flat[i+1])
	}
	var errs []error
	number := func(name string) int64 {
		n, err := strconv.ParseInt(fields[name], 10, 64)
		errs = append(errs, err)
		return n
	}
	j := Job{
		ID: fields["id"], Kind: fields["kind"], Key: fields["key"], Once: fields["once"], Tenant: fields["tenant"],
		Priority: int(number("priority")), NotBefore: fromMicros(number("not_before")),
		State: State(fields["state"]), Attempt: number("attempt"), Retries: int(number("retries")),
		Cause: fields["cause"], Worker: fields["worker"], Verdict: Verdict{Cause: fields["verdict"]},
		Created: fromMicros(number("created")), Updated: fromMicros(number("updated")),
	}
	if j.Verdict.Cause != "" {
		j.Verdict.Since = fromMicros(number("judged"))
	}
	if payload, _ := parts[1].(string); payload != "" {
		j.Payload = json.RawMessage(payload)
	}
	if err := errors.Join(errs...); err != nil {
		return Job{}, nil, fmt.Errorf("read job %s: %w", j.ID, err)
	}
	return j, fields, nil
}

// micros is how a time is stored; far futures are cut to what a script counts
// exactly.
func micros(t time.Time) int64 {
	const most = 1<<53 - 1
	switch {
	case t.IsZero():
		return 0
	case t.Unix() <= 0:
		return 1
	case t.Unix() >= most/int64(time.Second/time.Microsecond):
		return most
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// ceilMicros is a duration in whole microseconds, no shorter than it.
func ceilMicros(d time.Duration) int64 {
	return int64(math.Ceil(float64(d) / float64(time.Microsecond)))
}
