package batch

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// boundMakespan is what 64 tasks under a cap of 8 may take, over what they would
// take if starting and ending a slot were free.
const boundMakespan = 1.02

// BenchmarkBatch runs 64 tasks whose times spread as those of agents do, a
// hundred times as fast.
func BenchmarkBatch(b *testing.B) {
	random := rand.New(rand.NewPCG(7, 64))
	takes := make([]time.Duration, 64)
	for i := range takes {
		takes[i] = time.Duration(200 * math.Exp(0.5*random.NormFloat64()) * float64(time.Millisecond))
	}
	tasks := make([]Task[struct{}], len(takes))
	for i, d := range takes {
		tasks[i] = Task[struct{}]{Type: "lens", Run: func(context.Context, *Control) (struct{}, error) {
			time.Sleep(d)
			return struct{}{}, nil
		}}
	}
	ideal := listSchedule(takes, DefaultConcurrency)
	for b.Loop() {
		if r := Run(b.Context(), Options{MaxConcurrency: DefaultConcurrency, Emit: func(Event) {}}, tasks); !r.Receipt.Whole() {
			b.Fatalf("%+v", r.Receipt)
		}
	}
	ratio := b.Elapsed().Seconds() / float64(b.N) / ideal.Seconds()
	b.ReportMetric(ratio, "makespan-ratio")
	b.ReportMetric(ratio/boundMakespan, "makespan/bound")
}

// listSchedule is how long the tasks take in their order on n machines, each
// given to the machine that is free first.
func listSchedule(takes []time.Duration, n int) time.Duration {
	free := make([]time.Duration, n)
	for _, d := range takes {
		i := slices.Index(free, slices.Min(free))
		free[i] += d
	}
	return slices.Max(free)
}
