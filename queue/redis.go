package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is the back end for many workers on many hosts.
//
// Each change is one server-side script, so it happens whole or not at all, and
// the clock is the server's. All keys carry one hash tag and lie in one slot of
// a cluster. A call whose answer is lost is sent again under the same token, and
// the scripts do not count it twice.
//
// As with SQLite each worker holds a lock file while its process lives. It is
// known to the processes of one host that share the directory; for all others a
// dead worker's lease runs out by time.
type Redis struct {
	ctx    context.Context // values of the opener's, never cancelled
	client redis.UniversalClient
	prefix string
	lease  time.Duration
	shift  func() time.Duration // added to the server's clock, by tests
	log    *slog.Logger

	locks *locks
	home  string // names the host and the directory of the lock files
	swept struct {
		sync.Mutex
		at time.Time
	}
	bell    *bell
	sub     *redis.PubSub
	closing chan struct{}
	close   func() error
	running sync.WaitGroup
}

// RedisOptions say where a Redis is.
type RedisOptions struct {
	// URL is redis://user:password@host:port/db, with rediss for TLS. A Sentinel
	// is redis+sentinel://host:port/db?master_name=x&addr=host2:port, a Cluster
	// redis+cluster://host:port?addr=host2:port; both have a rediss form too.
	// With TLS the parameters ca, cert and key name files in PEM, by absolute paths.
	URL string
	// Dir is where the lock files of this host's workers are; it is made if
	// necessary. Processes of one host that share it take over from each other
	// at once.
	Dir string
	Log *slog.Logger // nil is slog.Default()
}

// redisPrefix begins every key and the channel of the store.
const redisPrefix = "{slipway}:"

const (
	sweepPeriod  = 250 * time.Millisecond // how often the locks of dead workers are looked for
	closeTimeout = 2 * time.Second
)

// OpenRedis connects to a Redis and checks it: what would lose work is refused
// or logged as a warning. The store lives until Close, whatever happens to ctx.
func OpenRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	s, err := dialRedis(o)
	if err != nil {
		return nil, fmt.Errorf("open Redis: %w", err)
	}
	err = inspect(ctx, s.client, s.log)
	if redis.HasErrorPrefix(err, "NOPERM") {
		err = fmt.Errorf("%w; %s", err, rightsAdvice)
	}
	if err == nil {
		err = s.start(ctx, o.Dir)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open Redis: %w", err), s.client.Close())
	}
	return s, nil
}

// dialRedis is a store that start has to follow.
func dialRedis(o RedisOptions) (*Redis, error) {
	client, err := dial(o.URL)
	if err != nil {
		return nil, err
	}
	s := &Redis{
		client: client, prefix: redisPrefix, lease: leaseTime, shift: func() time.Duration { return 0 }, log: o.Log,
		bell: newBell(), closing: make(chan struct{}),
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.close = sync.OnceValue(s.shutdown)
	return s, nil
}

// start takes a place among the workers of the host, and listens.
func (s *Redis) start(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if s.home, err = homeOf(dir); err != nil {
		return err
	}
	s.ctx = context.WithoutCancel(ctx)
	s.locks = &locks{dir: dir, held: map[string]*os.File{}}
	s.sweep(ctx)
	s.sub = s.client.Subscribe(s.ctx, s.prefix+"bell")
	news := s.sub.ChannelWithSubscriptions()
	s.running.Go(func() { s.listen(news) })
	return nil
}

// homeOf names a directory of this host, as long as the host runs: workers of
// two hosts that share it by a network are apart, and so are two containers
// that do not.
func homeOf(dir string) (string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, err := os.Hostname()
		if err != nil {
			return "", err
		}
		host = []byte(name)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("look at %s: its file system does not number files", dir)
	}
	return fmt.Sprintf("%s/%d/%d", strings.TrimSpace(string(host)), stat.Dev, stat.Ino), nil
}

// listen rings the bell for what any client has put, sent or settled. After a
// new connection everybody looks: what was said meanwhile was not heard.
func (s *Redis) listen(news <-chan any) {
	for said := range news {
		switch said := said.(type) {
		case *redis.Subscription:
			s.bell.ringAll()
		case *redis.Message:
			s.bell.ring(said.Payload)
		}
	}
}

// Close ends the store: every Wait returns, and the leases of its workers end,
// so that others may take them.
func (s *Redis) Close() error { return s.close() }

func (s *Redis) shutdown() error {
	close(s.closing)
	ctx, cancel := context.WithTimeout(s.ctx, closeTimeout)
	defer cancel()
	err := s.locks.release(func(worker string) error { return s.expire(ctx, worker) })
	err = errors.Join(err, s.sub.Close())
	s.running.Wait()
	return errors.Join(err, s.client.Close())
}

// sweep ends the leases of this host's dead workers, now and then. In doubt it
// leaves them to run out by time.
func (s *Redis) sweep(ctx context.Context) {
	s.swept.Lock()
	defer s.swept.Unlock()
	if time.Since(s.swept.at) < sweepPeriod {
		return
	}
	s.locks.sweep(func(worker string) error { return s.expire(ctx, worker) })
	s.swept.at = time.Now()
}

func (s *Redis) expire(ctx context.Context, worker string) error {
	return s.run(ctx, expireScript, s.home, worker).Err()
}

// Put implements Store.
func (s *Redis) Put(ctx context.Context, j Job) (open Job, added bool, err error) {
	if j.ID == "" || j.Kind == "" {
		return Job{}, false, fmt.Errorf("put a job: id %q and kind %q must not be empty", j.ID, j.Kind)
	}
	there, err := readAnswer(s.run(ctx, putScript, j.ID, j.Kind, j.Key, j.Once, j.Tenant, j.Priority, micros(j.NotBefore), []byte(j.Payload)))
	if err == nil {
		open, err = readJob(there.rest[0])
	}
	if err != nil {
		return Job{}, false, fmt.Errorf("put job %s: %w", j.ID, err)
	}
	return open, there.yes, nil
}

// Send implements Store.
func (s *Redis) Send(ctx context.Context, jobID string, g Signal) error {
	if g.ID == "" {
		return fmt.Errorf("send a signal to job %s: it has no id", jobID)
	}
	body := g.Body
	g.Body = nil
	signal, err := frame(g, body)
	if err != nil {
		return fmt.Errorf("send %s to job %s: %w", g.Kind, jobID, err)
	}
	answer, err := s.run(ctx, sendScript, jobID, g.ID, g.Reopen, signal).Text()
	if err == nil {
		err = map[string]error{"unknown": ErrUnknown, "finished": ErrFinished, "open": ErrOpen}[answer]
	}
	if err != nil {
		return fmt.Errorf("send %s to job %s: %w", g.Kind, jobID, err)
	}
	return nil
}

// List implements Store. Many jobs come in several pages, which are not of one
// instant.
func (s *Redis) List(ctx context.Context, q Query) ([]Job, error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	var jobs []Job
	for below := "0"; ; {
		args := append([]any{q.Limit - len(jobs), q.Unfinished, q.Once, q.Key, len(q.IDs), below}, anys(slices.Concat(q.IDs, q.Kinds))...)
		page, err := s.run(ctx, listScript, args...).Slice()
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		for _, v := range page[1:] {
			j, err := readJob(v)
			if err != nil {
				return nil, fmt.Errorf("list jobs: %w", err)
			}
			jobs = append(jobs, j)
		}
		if below = fmt.Sprint(page[0]); below == "0" || len(jobs) >= q.Limit {
			return jobs, nil
		}
	}
}

// Wait implements Store.
func (s *Redis) Wait(ctx context.Context, kinds ...string) error {
	return s.bell.wait(ctx, s.closing, kinds)
}
