package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dial makes the client that an address asks for; it connects when it is used.
// No error of it shows the address, which holds a password.
func dial(address string) (redis.UniversalClient, error) {
	quiet()
	scheme, _, _ := strings.Cut(address, "://")
	base, form, _ := strings.Cut(scheme, "+")
	if base != "redis" && base != "rediss" {
		return nil, errors.New("its address must begin with redis:// or rediss://, or with redis+sentinel:// or redis+cluster://")
	}
	u, err := url.Parse(strings.Replace(address, scheme, base, 1))
	if err != nil {
		return nil, discreet(err)
	}
	secure, err := takeTLS(u)
	if err != nil {
		return nil, err
	}
	switch form {
	case "":
		o, err := redis.ParseURL(u.String())
		if err != nil {
			return nil, discreet(err)
		}
		o.DisableIdentity, o.ContextTimeoutEnabled, o.Dialer = true, true, dialTLS(secure, o.DialTimeout)
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return redis.NewClient(o), nil
	case "sentinel":
		o, err := parseSentinel(u)
		if err != nil {
			return nil, err
		}
		o.DisableIdentity, o.ContextTimeoutEnabled, o.Dialer = true, true, dialTLS(secure, o.DialTimeout)
		return redis.NewFailoverClient(o), nil
	case "cluster":
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, discreet(err)
		}
		o.DisableIdentity, o.ContextTimeoutEnabled, o.Dialer = true, true, dialTLS(secure, o.DialTimeout)
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return redis.NewClusterClient(o), nil
	}
	return nil, fmt.Errorf("unknown form %q of address: there are redis+sentinel:// and redis+cluster://", form)
}

// parseSentinel reads the address of Sentinels. As everywhere, the user before
// the @ is that of Redis; Sentinels that want one of their own get it by
// parameters.
func parseSentinel(u *url.URL) (*redis.FailoverOptions, error) {
	query := u.Query()
	if query.Has("username") || query.Has("password") {
		return nil, errors.New("username= and password= in the address of a Sentinel: the user of Redis stands before the @, that of the Sentinels is sentinel_username= and sentinel_password=")
	}
	user, password := query.Get("sentinel_username"), query.Get("sentinel_password")
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	u.RawQuery = query.Encode()
	o, err := redis.ParseFailoverURL(u.String())
	if err != nil {
		return nil, discreet(err)
	}
	if o.MasterName == "" {
		return nil, errors.New("the address of a Sentinel needs ?master_name=")
	}
	o.Username, o.Password = o.SentinelUsername, o.SentinelPassword // for the library it is the Sentinels' user
	o.SentinelUsername, o.SentinelPassword = user, password
	return o, nil
}

// quiet has the client library, which writes to standard error, log as we do.
var quiet = sync.OnceFunc(func() { redis.SetLogger(redisLog{}) })

type redisLog struct{}

// Printf implements the library's logger.
func (redisLog) Printf(ctx context.Context, format string, v ...any) {
	slog.DebugContext(ctx, fmt.Sprintf(format, v...))
}

// discreet drops the address from an error.
func discreet(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("its address cannot be read: %w", u.Err)
	}
	return fmt.Errorf("its address cannot be used: %w", err)
}

const (
	redisMajor = 7

	// A worker compares the end of its lease with its own clock.
	skewWarned  = time.Second
	skewRefused = leaseTime / 3
)

// inspect refuses a Redis that cannot be right, and warns of one that may lose
// what it has acknowledged.
func inspect(ctx context.Context, client redis.UniversalClient, log *slog.Logger) error {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	if err := judgeVersion(info); err != nil {
		return err
	}
	if err := checkRights(ctx, client); err != nil {
		return err
	}
	asked := time.Now()
	there, err := client.Time(ctx).Result()
	if err != nil {
		return err
	}
	warning, err := judgeClock(there.Sub(asked), time.Since(asked))
	if err != nil {
		return err
	}
	warnings := judgeConfig(func(name string) (string, error) {
		got, err := client.ConfigGet(ctx, name).Result()
		return got[name], err
	})
	if warning != "" {
		warnings = append(warnings, warning)
	}
	for _, w := range warnings {
		log.Error("Redis: " + w) // what a person must know
	}
	return nil
}

func judgeVersion(info string) error {
	for line := range strings.Lines(info) {
		version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:")
		if !ok {
			continue
		}
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err != nil || n < redisMajor {
			return fmt.Errorf("it has version %s, and %d or later is needed", version, redisMajor)
		}
		return nil
	}
	return errors.New("it does not say which version it is")
}

// judgeClock looks at how far the server's clock is ahead, seen from before the
// question, which took a while.
func judgeClock(ahead, took time.Duration) (warning string, err error) {
	skew := max(ahead-took, -ahead, 0)
	switch {
	case skew > skewRefused:
		return "", fmt.Errorf("its clock and this host's are %v apart: a worker could not tell when its lease ends", skew.Round(time.Millisecond))
	case skew > skewWarned:
		return fmt.Sprintf("its clock and this host's are %v apart; keep both in time", skew.Round(time.Millisecond)), nil
	}
	return "", nil
}

// judgeConfig asks for the settings on which promises rest.
func judgeConfig(get func(name string) (string, error)) (warnings []string) {
	for _, want := range []struct{ name, value, otherwise string }{
		{"maxmemory-policy", "noeviction", "jobs may be thrown away when its memory is full"},
		{"appendonly", "yes", "jobs that it acknowledged are lost when it ends"},
		{"appendfsync", "always", "jobs of the last second are lost when its host fails"},
	} {
		got, err := get(want.name)
		switch {
		case err != nil || got == "":
			warnings = append(warnings, fmt.Sprintf("whether %s is %s cannot be asked; if not, %s", want.name, want.value, want.otherwise))
		case got != want.value:
			warnings = append(warnings, fmt.Sprintf("%s is %s, not %s: %s", want.name, got, want.value, want.otherwise))
		}
	}
	return warnings
}
