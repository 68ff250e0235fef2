package queue_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// onBoth runs a benchmark on each back end, Redis with appendfsync always.
func onBoth(b *testing.B, bench func(b *testing.B, s queue.Store)) {
	b.Run("sqlite", func(b *testing.B) {
		s, err := queue.OpenSQLite(b.Context(), b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
		bench(b, s)
	})
	b.Run("redis", func(b *testing.B) {
		s, err := queue.OpenRedis(b.Context(), queue.RedisOptions{URL: queuetest.StartRedis(b).URL(), Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
		bench(b, s)
	})
}

// BenchmarkAppend measures durable appends, one after the other and from many
// builds at once, whose appends share a commit. Beside the rate is the share of
// the bound: above 1 is too slow.
func BenchmarkAppend(b *testing.B) {
	for writers, bound := range map[int]float64{1: 200, 16: 2000} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			onBoth(b, func(b *testing.B, s queue.Store) {
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
		})
	}
}

// BenchmarkPut takes deliveries in, as the intake does before it answers.
func BenchmarkPut(b *testing.B) {
	for writers, bound := range map[int]float64{1: 100, 16: 1000} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			onBoth(b, func(b *testing.B, s queue.Store) {
				payload := fmt.Appendf(nil, "%q", fmt.Sprintf("%08000d", 0)) // a delivery
				took := make([]time.Duration, b.N)
				b.ResetTimer()
				together(b, writers, func(i int64) error {
					start := time.Now()
					_, _, err := s.Put(b.Context(), queue.Job{ID: fmt.Sprint(i), Kind: "delivery", Key: fmt.Sprint(i % 100), Payload: payload})
					took[i] = time.Since(start)
					return err
				})
				rate := float64(b.N) / b.Elapsed().Seconds()
				b.ReportMetric(rate, "puts/s")
				b.ReportMetric(bound/rate, "rate/bound")
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			})
		})
	}
}

// BenchmarkDeliver takes a delivery in, claims it and settles it, with a step in
// its journal: what a server does for every webhook.
func BenchmarkDeliver(b *testing.B) {
	const bound = 200
	onBoth(b, func(b *testing.B, s queue.Store) {
		payload := fmt.Appendf(nil, "%q", fmt.Sprintf("%08000d", 0))
		b.ResetTimer()
		together(b, 16, func(i int64) error {
			_, _, err := s.Put(b.Context(), queue.Job{ID: fmt.Sprint(i), Kind: "delivery", Key: fmt.Sprint(i), Payload: payload})
			if err != nil {
				return err
			}
			l, err := s.Claim(b.Context(), "w", "delivery")
			if err != nil {
				return err
			}
			if _, err := s.Append(b.Context(), l, queue.Entry{Key: "decision", Kind: queue.Choice}); err != nil {
				return err
			}
			return s.Done(b.Context(), l)
		})
		rate := float64(b.N) / b.Elapsed().Seconds()
		b.ReportMetric(rate, "deliveries/s")
		b.ReportMetric(bound/rate, "rate/bound")
	})
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

// BenchmarkClaim claims among 10,000 waiting jobs of 500 tenants while 20 run;
// half of the claims are to take less than 2 ms.
func BenchmarkClaim(b *testing.B) {
	for _, kinds := range [][]string{{"build"}, {"build", "review"}} {
		b.Run(fmt.Sprintf("kinds=%d", len(kinds)), func(b *testing.B) {
			onBoth(b, func(b *testing.B, s queue.Store) {
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
				median := took[len(took)/2]
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(median.Microseconds())/1000, "median-ms")
				b.ReportMetric(float64(median)/float64(2*time.Millisecond), "median/bound")
			})
		})
	}
}

// BenchmarkTakeover is the time from the kill -9 of a worker until another has
// its job: less than two seconds on the same host, and two more than a lease from
// another. It prints each time that it took.
func BenchmarkTakeover(b *testing.B) {
	for _, c := range []struct {
		name  string
		apart bool
		n     int
		bound time.Duration
	}{
		{"on the same host", false, 20, 2 * time.Second},
		{"from another host", true, 8, queue.LeaseTime + 2*time.Second},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := queuetest.StartRedis(b)
			took := make([]time.Duration, c.n)
			for b.Loop() {
				var all sync.WaitGroup
				for i := range took {
					all.Go(func() { took[i] = takeover(b, r, rand.Text(), c.apart) })
				}
				all.Wait()
			}
			slices.Sort(took)
			b.Logf("%v", took)
			b.ReportMetric(took[len(took)/2].Seconds(), "median-s")
			b.ReportMetric(float64(took[len(took)-1])/float64(c.bound), "max/bound")
		})
	}
}

func takeover(b *testing.B, r *queuetest.Redis, kind string, apart bool) time.Duration {
	dir := b.TempDir()
	s := openRedis(b, r.URL(), dir)
	if apart {
		dir = b.TempDir()
	}
	if _, _, err := s.Put(b.Context(), queue.Job{ID: kind, Kind: kind}); err != nil {
		b.Error(err)
	}
	lines, _, _, kill := startWith(b, childRole+"=hold", childKind+"="+kind, childURL+"="+r.URL(), childDir+"="+dir, childName+"="+kind)
	if !lines.Scan() || lines.Text() != "held" {
		b.Errorf("the child said %q", lines.Text())
		return 0
	}
	kill()
	begin := time.Now()
	soon(b, s, time.Minute, kind)
	return time.Since(begin)
}
