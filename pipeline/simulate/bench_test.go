package simulate

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
)

// What the engine may cost. A benchmark reports each measure beside its share of
// the bound: above 1 is too much.
const (
	boundRatio  = 1.12                 // of a random plan with eight lanes: makespan over bound
	boundOwnCPU = 3 * time.Millisecond // of this process, for one agent call
	boundResume = 2 * time.Second      // of a build with 1,000 issues, until its first agent works again
	boundMemory = 300 << 20            // of a build with 1,000 issues, all that was asked of the system
)

func BenchmarkSimulate12(b *testing.B)  { benchmarkRandom(b, 12) }
func BenchmarkSimulate48(b *testing.B)  { benchmarkRandom(b, 48) }
func BenchmarkSimulate200(b *testing.B) { benchmarkRandom(b, 200) }

// benchmarkRandom is the ratio of a random plan on eight lanes, another plan at
// every turn.
func benchmarkRandom(b *testing.B, n int) {
	var ratio float64
	var own, git int64
	calls, seed := 0, uint64(0)
	for b.Loop() {
		seed++
		r := simulated(b, Random(n, seed))
		ratio += r.Ratio
		own, git, calls = own+r.OwnCPUMS, git+r.GitCPUMS, calls+r.AgentCalls
	}
	b.ReportMetric(ratio/float64(b.N), "ratio")
	b.ReportMetric(ratio/float64(b.N)/boundRatio, "ratio/bound")
	b.ReportMetric(float64(own)/float64(calls), "own-cpu-ms/call")
	b.ReportMetric(float64(git)/float64(calls), "git-cpu-ms/call")
}

// simulated runs a plan in which every issue lands.
func simulated(b *testing.B, p Plan) Result {
	b.Helper()
	r, err := Run(b.Context(), p, Options{})
	if err != nil {
		b.Fatal(err)
	}
	if r.Merges != len(p.Issues) {
		b.Fatalf("%d of %d issues landed", r.Merges, len(p.Issues))
	}
	return r
}

// crowd is a plan of n issues whose agents take a moment, with five calls for
// each: one half of the issues needs two iterations, the other three.
func crowd(n int) Plan {
	p := Random(n, 1)
	for i := range p.Issues {
		p.Issues[i].CoderMS, p.Issues[i].ReviewerMS = 20, 10
		p.Issues[i].Iterations = 2 + i%2
	}
	return p
}

// BenchmarkThousand is a build of 1,000 issues and 5,000 calls. It is stopped on
// its way and resumed.
func BenchmarkThousand(b *testing.B) {
	for b.Loop() {
		thousand(b)
	}
}

func thousand(b *testing.B) {
	pipeline.EaseCollector() // as main does
	p := crowd(1000)
	s, err := Open(b.Context(), p, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	const half = 2500
	enough := errors.New("half of it is done")
	ctx, stop := context.WithCancelCause(b.Context())
	defer stop(nil)
	s.agents.heard = func(n int) {
		if n == half {
			stop(enough)
		}
	}
	if _, err := s.Run(ctx); !errors.Is(err, enough) {
		b.Fatalf("the build was to be stopped: %v", err)
	}
	s.agents.heard = nil
	began := time.Now()
	var resumed time.Duration
	s.agents.heard = func(int) {
		if resumed == 0 {
			resumed = time.Since(began)
		}
	}
	r, err := s.Run(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if r.Merges != len(p.Issues) {
		b.Fatalf("%d of %d issues landed", r.Merges, len(p.Issues))
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	calls := float64(r.AgentCalls) // of the whole build, which paid for both halves
	b.ReportMetric(float64(r.AgentCalls), "calls")
	b.ReportMetric(float64(memory.Sys)/(1<<20), "memory-MB")
	b.ReportMetric(float64(memory.Sys)/boundMemory, "memory/bound")
	b.ReportMetric(float64(resumed.Milliseconds()), "resume-ms")
	b.ReportMetric(float64(resumed)/float64(boundResume), "resume/bound")
	b.ReportMetric(float64(r.OwnCPUMS)/calls, "own-cpu-ms/call")
	b.ReportMetric(float64(r.OwnCPUMS)/calls/float64(boundOwnCPU.Milliseconds()), "own-cpu/bound")
	b.ReportMetric(float64(r.GitCPUMS)/calls, "git-cpu-ms/call")
}
