package queue_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

func openBench(b *testing.B) *queue.SQLite {
	b.Helper()
	s, err := queue.OpenSQLite(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkAppend measures durable appends, one after the other and from many
// builds at once, whose appends share a commit. Beside the rate is the share of
// the bound: above 1 is too slow.
func BenchmarkAppend(b *testing.B) {
	for writers, bound := range map[int]float64{1: 200, 16: 2000} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := openBench(b)
			if _, _, err := s.Put(b.Context(), queue.Job{ID: "a", Kind: "k"}); err != nil {
				b.Fatal(err)
			}
			l, err := s.Claim(b.Context(), "w", "k")
			if err != nil {
				b.Fatal(err)
			}
			outcome := fmt.Appendf(nil, "%q", fmt.Sprintf("%01000d", 0))
			b.ResetTimer()
			together(b, writers, func(i int64) error {
				_, err := s.Append(b.Context(), l, queue.Entry{Key: fmt.Sprint(i), Kind: queue.Call, Outcome: outcome})
				return err
			})
			rate := float64(b.N) / b.Elapsed().Seconds()
			b.ReportMetric(rate, "appends/s")
			b.ReportMetric(bound/rate, "rate/bound")
		})
	}
}

func BenchmarkPut(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := openBench(b)
			payload := fmt.Appendf(nil, "%q", fmt.Sprintf("%08000d", 0)) // a delivery
			took := make([]time.Duration, b.N)
			b.ResetTimer()
			together(b, writers, func(i int64) error {
				start := time.Now()
				_, _, err := s.Put(b.Context(), queue.Job{ID: fmt.Sprint(i), Kind: "delivery", Key: fmt.Sprint(i % 100), Payload: payload})
				took[i] = time.Since(start)
				return err
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// together runs a function b.N times, spread over some goroutines.
func together(b *testing.B, writers int, do func(i int64) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkClaim claims among 10,000 waiting jobs of 500 tenants while 20 run.
func BenchmarkClaim(b *testing.B) {
	for _, kinds := range [][]string{{"build"}, {"build", "review"}} {
		b.Run(fmt.Sprintf("kinds=%d", len(kinds)), func(b *testing.B) {
			s := openBench(b)
			const jobs, tenants = 10_000, 500
			var wg sync.WaitGroup
			for w := range 100 {
				wg.Go(func() {
					for i := w; i < jobs; i += 100 {
						_, _, err := s.Put(b.Context(), queue.Job{
							ID: fmt.Sprint(i), Kind: kinds[i/tenants%len(kinds)], Key: fmt.Sprint("key-", i%2000), Tenant: fmt.Sprint("tenant-", i%tenants),
						})
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			var took []time.Duration
			var running []*queue.Lease
			for b.Loop() {
				start := time.Now()
				l, err := s.Claim(b.Context(), "w", kinds...)
				took = append(took, time.Since(start))
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if running = append(running, l); len(running) > 20 {
					if err := s.Park(b.Context(), running[0], time.Unix(1, 0), nil); err != nil {
						b.Fatal(err)
					}
					running = running[1:]
				}
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
