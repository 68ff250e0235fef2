package queue

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
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

// insist runs a script until Redis answers or ctx ends: what is at stake is paid
// work, and a server that restarts comes back.
func (s *Redis) insist(ctx context.Context, script *redis.Script, args ...any) *redis.Cmd {
	token := rand.Text()
	for {
		cmd := s.call(ctx, script, token, args)
		if !away(cmd.Err()) || ctx.Err() != nil {
			return cmd
		}
		s.log.Warn("Redis does not answer, trying again", "err", cmd.Err())
		select {
		case <-ctx.Done():
			return cmd
		case <-s.closing:
			return cmd
		case <-time.After(storePause):
		}
	}
}

// away reports whether an error says that Redis could not be asked.
func away(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if _, answered := errors.AsType[redis.Error](err); answered {
		for _, prefix := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"} {
			if redis.HasErrorPrefix(err, prefix) {
				return true
			}
		}
		return false
	}
	return true
}

func (s *Redis) call(ctx context.Context, script *redis.Script, token string, args []any) *redis.Cmd {
	if err := ctx.Err(); err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	return script.Run(ctx, s.client, []string{s.prefix}, append([]any{s.shift().Microseconds(), token}, args...)...)
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

const (
	plain      = 'j'
	compressed = 'z'

	// maxFrame bounds what one step or signal may hold: Redis keeps it in memory.
	maxFrame = 32 << 20
)

// frame is how a signal or a step is stored: its fields as JSON with their
// length before them, and then a body, byte for byte; compressed where it is
// larger than maxInline.
func frame(fields any, body []byte) ([]byte, error) {
	meta, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	whole := fmt.Appendf([]byte{plain}, "%d ", len(meta))
	whole = append(append(whole, meta...), body...)
	if len(whole) > maxFrame {
		return nil, fmt.Errorf("%d bytes are more than Redis is to hold in one piece, which is %d", len(whole), maxFrame)
	}
	if len(whole) <= maxInline {
		return whole, nil
	}
	out := bytes.NewBuffer([]byte{compressed})
	w := gzip.NewWriter(out)
	_, err = w.Write(whole[1:])
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

var errFrame = errors.New("what is stored is damaged")

// unframe reads what a script has stored: the time, and behind it a frame.
func unframe(stored any, fields any) (at time.Time, body []byte, err error) {
	text, _ := stored.(string)
	when, framed, ok := bytes.Cut([]byte(text), []byte{' '})
	n, err := strconv.ParseInt(string(when), 10, 64)
	if !ok || err != nil || len(framed) == 0 {
		return time.Time{}, nil, errFrame
	}
	whole := framed[1:]
	if framed[0] == compressed {
		r, err := gzip.NewReader(bytes.NewReader(whole))
		if err != nil {
			return time.Time{}, nil, errors.Join(errFrame, err)
		}
		if whole, err = io.ReadAll(io.LimitReader(r, maxFrame+1)); err != nil {
			return time.Time{}, nil, errors.Join(errFrame, err)
		}
	}
	length, rest, ok := bytes.Cut(whole, []byte{' '})
	size, err := strconv.Atoi(string(length))
	if !ok || err != nil || size < 0 || size > len(rest) {
		return time.Time{}, nil, errFrame
	}
	if err := json.Unmarshal(rest[:size], fields); err != nil {
		return time.Time{}, nil, errors.Join(errFrame, err)
	}
	if body = rest[size:]; len(body) == 0 {
		body = nil
	}
	return fromMicros(n), body, nil
}
