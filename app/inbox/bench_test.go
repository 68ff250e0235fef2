package inbox_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// What GitHub and the people who wait for an answer may count on. Beside each
// measure is its share of the bound: above 1 is too slow.
const (
	boundRate   = 200.0 // deliveries a second
	boundAnswer = time.Second
)

// BenchmarkDeliveries measures signed deliveries of 10 kB into each durable store,
// by 16 senders at once: how many a second, and the slowest of a hundred.
func BenchmarkDeliveries(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		store, err := queue.OpenSQLite(b.Context(), b.TempDir())
		deliveries(b, store, err)
	})
	for _, fsync := range []string{"always", "everysec"} {
		b.Run("redis appendfsync "+fsync, func(b *testing.B) {
			r := queuetest.StartRedis(b, "--appendfsync", fsync)
			store, err := queue.OpenRedis(b.Context(), queue.RedisOptions{URL: r.URL(), Dir: b.TempDir(), Log: slog.New(slog.DiscardHandler)})
			deliveries(b, store, err)
		})
	}
}

func deliveries(b *testing.B, store interface {
	queue.Store
	io.Closer
}, err error) {
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	}()
	in := newInbox(b, store)
	body := fmt.Appendf(nil, `{"installation":{"id":7},"repository":{"full_name":"o/r"},"issue":{"number":12},"pad":"%s"}`, bytes.Repeat([]byte("x"), 10_000))
	signature := sign(oldSecret, body)
	var (
		next  atomic.Int64
		mu    sync.Mutex
		times []time.Duration
		wg    sync.WaitGroup
	)
	b.ResetTimer()
	for range 16 {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				r := request(body, signature)
				r.Header.Set("X-GitHub-Delivery", fmt.Sprintf("d-%d", n))
				w := httptest.NewRecorder()
				start := time.Now()
				in.ServeHTTP(w, r)
				took := time.Since(start)
				if w.Code != http.StatusAccepted {
					b.Errorf("%d %s", w.Code, w.Body)
				}
				mu.Lock()
				times = append(times, took)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(times)
	rate, p99 := float64(b.N)/b.Elapsed().Seconds(), times[len(times)*99/100]
	b.ReportMetric(rate, "deliveries/s")
	b.ReportMetric(boundRate/rate, "rate/bound")
	b.ReportMetric(float64(p99.Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(p99)/float64(boundAnswer), "p99/bound")
}
