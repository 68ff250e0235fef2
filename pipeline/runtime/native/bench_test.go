package native_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/native"
)

const (
	crowd       = 1000                  // agents at once
	crowdTurns  = 5                     // of each, with a tool call in every one but the last
	latency     = 50 * time.Millisecond // of the endpoint
	cpuBound    = 3 * time.Millisecond  // of this process, a turn
	memoryBound = 1 << 30               // bytes of this process, at its most

	endpointVariable = "SLIPWAY_TEST_ENDPOINT"
)

// BenchmarkCrowd runs a thousand agents in one process. The scripted model is a
// process of its own, so that what is measured is ours.
func BenchmarkCrowd(b *testing.B) {
	for _, d := range dialects {
		b.Run(d.name, func(b *testing.B) {
			r := crowdRuntime(b)
			calls := make([]runtime.Call, crowd)
			for i := range calls {
				calls[i] = call(b, d.model)
				put(b, calls[i].Dir, "a.txt", strings.Repeat("all work and no play\n", 100))
			}
			for b.Loop() {
				before := cpu(b)
				turns := runCrowd(b, r, calls)
				each := (cpu(b) - before) / time.Duration(turns)
				most := memory(b)
				b.ReportMetric(float64(each.Microseconds()), "cpu-us/turn")
				b.ReportMetric(float64(most>>20), "MiB")
				b.ReportMetric(float64(each)/float64(cpuBound), "cpu/bound")
				b.ReportMetric(float64(most)/memoryBound, "memory/bound")
			}
		})
	}
}

// runCrowd runs all calls side by side and returns how many turns they took.
func runCrowd(b *testing.B, r *native.Runtime, calls []runtime.Call) int {
	b.Helper()
	var (
		work  sync.WaitGroup
		mu    sync.Mutex
		turns int
	)
	for _, c := range calls {
		work.Go(func() {
			res, err := r.Run(b.Context(), c, quiet)
			mu.Lock()
			defer mu.Unlock()
			if turns += res.Turns; err != nil || res.Turns != crowdTurns || string(res.Output) != `{"done":true}` {
				b.Errorf("%d turns, %s, %v", res.Turns, res.Output, err)
			}
		})
	}
	work.Wait()
	return turns
}

// crowdRuntime is in front of an endpoint in another process.
func crowdRuntime(b *testing.B) *native.Runtime {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestServeAsEndpoint$", "-test.timeout=20m")
	cmd.Env = append(os.Environ(), endpointVariable+"=1")
	in, err := cmd.StdinPipe()
	must(b, err)
	out, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close() // that ends it
		_ = cmd.Wait()
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	must(b, err)
	url = strings.TrimSpace(url)
	transport := &http.Transport{MaxIdleConnsPerHost: crowd}
	b.Cleanup(transport.CloseIdleConnections)
	prices, err := runtime.NewPrices(nil)
	must(b, err)
	r, err := native.New(native.Options{
		Box: box(b), Prices: prices, HTTP: &http.Client{Transport: transport},
		Providers: map[string]native.Provider{
			"anthropic": {Kind: native.Anthropic, BaseURL: url, Key: modeltest.Key},
			"openai":    {Kind: native.OpenAI, BaseURL: url + "/v1", Key: modeltest.Key},
		},
	})
	must(b, err)
	return r
}

// TestServeAsEndpoint is the endpoint of BenchmarkCrowd, in its own process.
func TestServeAsEndpoint(t *testing.T) {
	if os.Getenv(endpointVariable) == "" {
		t.Log("this is the endpoint of a benchmark, which starts it as a process of its own")
		return
	}
	model := modeltest.New(t, func(req modeltest.Request) modeltest.Turn {
		turn := modeltest.Turn{Text: `Done: {"done":true}`}
		if len(req.Results()) < crowdTurns-1 {
			turn = use("READ", args{"path": "a.txt", "limit": 50})
			turn.Text = "I look at the file, to see what is in it."
		}
		turn.Wait = make(chan struct{})
		time.AfterFunc(latency, func() { close(turn.Wait) })
		return turn
	})
	fmt.Println(model.URL())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the benchmark is done
}

// cpu is what this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// memory is the most that this process has had, in bytes.
func memory(b *testing.B) int64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(b, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			must(b, err)
			return kib << 10
		}
	}
	b.Fatal("the kernel does not tell the memory of a process")
	return 0
}
