package durability_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkRestart is the time from the start of a server, after a kill -9, until
// its build goes on: until the agent that was at work is asked again. It prints
// each time that it took.
func BenchmarkRestart(b *testing.B) {
	const (
		builds, bound = 3, 2 * time.Second
		kills         = 4 // of each build: five without a step would end it
		coder         = "issue-01/round-1/iter-1/coder"
	)
	var took []time.Duration
	for b.Loop() {
		for range builds {
			s := voyage([]ship{{name: "add-alpha", files: map[string]string{"list.txt": "first\nalpha\nlast\n"}}}, nil)
			s.find(coder).DelayMS = longRun.Milliseconds()
			h := newHub(b, s)
			h.serve(b)
			h.label(b)
			eventually(b, longRun, func() string { return untilAsked(b, h, coder, 1) })
			for n := range kills {
				h.server.kill()
				begin := time.Now()
				h.serve(b)
				eventually(b, longRun, func() string { return untilAsked(b, h, coder, n+2) })
				took = append(took, time.Since(begin))
			}
			h.server.kill()
		}
	}
	slices.Sort(took)
	b.Logf("%v", took)
	b.ReportMetric(took[len(took)/2].Seconds(), "median-s")
	b.ReportMetric(float64(took[len(took)-1])/float64(bound), "max/bound")
}

// untilAsked says what is missing until a step was asked for so often.
func untilAsked(b *testing.B, h *hub, step string, times int) string {
	b.Helper()
	if n := asked(b, h.state, step); n < times {
		return fmt.Sprintf("%s was asked %d times\n%s", step, n, h.server.said(b))
	}
	return ""
}
