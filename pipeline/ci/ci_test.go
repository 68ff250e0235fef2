package ci

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

const (
	head = "1111111111111111111111111111111111111111"
	base = "2222222222222222222222222222222222222222"
)

var (
	pushed = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	knobs  = Options{Wait: 25 * time.Minute, Poll: 30 * time.Second}
)

// run is a check of an App called ci on head; its id tells attempts apart.
func run(id int64, name, conclusion string) forge.CIRun {
	r := forge.CIRun{ID: id, Name: name, App: "ci", Suite: 7, SHA: head, Status: "completed", Conclusion: conclusion, Completed: pushed.Add(time.Duration(id) * time.Second)}
	if conclusion == "" {
		r.Status, r.Completed = "in_progress", time.Time{}
	}
	return r
}

func on(sha string, r forge.CIRun) forge.CIRun {
	r.SHA = sha
	return r
}

func saying(r forge.CIRun, summary string) forge.CIRun {
	r.Summary = summary
	return r
}

func known(runs ...forge.CIRun) forge.CI { return forge.CI{SHA: head, Runs: runs, Configured: true} }

func requiring(c forge.CI, names ...string) forge.CI {
	c.Required = names
	return c
}

func of1(sha string, runs ...forge.CIRun) forge.CI {
	return forge.CI{SHA: sha, Runs: runs, Configured: true}
}

// again is a re-run of what a run was, asked for two minutes after the push.
func again(r forge.CIRun) Rerun { return Rerun{Run: r, At: pushed.Add(2 * time.Minute)} }

func refused(r forge.CIRun) Rerun {
	return Rerun{Run: r, At: pushed.Add(2 * time.Minute), Refused: "it belongs to another App"}
}

// told is a verdict in short: state, failures with their classes, what to repeat.
func told(v Verdict) string {
	parts := []string{string(v.State)}
	for _, f := range v.Failures {
		parts = append(parts, f.Run.Name+"="+string(f.Class))
	}
	for _, r := range v.Repeat {
		parts = append(parts, "again:"+r.Name)
	}
	return strings.Join(parts, " ")
}

func TestVerdicts(t *testing.T) {
	bad, good := run(1, "test", "failure"), run(2, "lint", "success")
	log := map[int64]string{}
	for name, test := range map[string]struct {
		after   time.Duration // since the push
		head    forge.CI
		base    forge.CI
		reruns  []Rerun
		logs    map[int64]string
		want    string
		cause   string // in the cause
		evident string // in the evidence of the first failure
	}{
		"a repository without CI":                           {0, forge.CI{SHA: head}, forge.CI{}, nil, nil, "none", "", ""},
		"nothing yet, just pushed":                          {0, known(), forge.CI{}, nil, nil, "waiting", "no check has appeared", ""},
		"nothing yet, a second before the grace is over":    {59 * time.Second, known(), forge.CI{}, nil, nil, "waiting", "", ""},
		"nothing came within the grace":                     {time.Minute, known(), forge.CI{}, nil, nil, "none", "no check appeared", ""},
		"nothing yet, but a name is required":               {10 * time.Minute, requiring(known(), "test"), forge.CI{}, nil, nil, "waiting", "required, and not reported: test", ""},
		"a required name never came":                        {25 * time.Minute, requiring(known(), "test"), forge.CI{}, nil, nil, "unclear", "required, and not reported: test", ""},
		"a required name, without any sign of CI beside it": {5 * time.Second, forge.CI{SHA: head, Required: []string{"test"}}, forge.CI{}, nil, nil, "waiting", "", ""},
		"all well, all required there":                      {2 * time.Minute, requiring(known(good, run(3, "test", "success")), "test", "lint"), forge.CI{}, nil, nil, "green", "", ""},
		"all well, one required name missing":               {2 * time.Minute, requiring(known(good), "test", "lint"), forge.CI{}, nil, nil, "waiting", "not reported: test", ""},
		"the first of several is quick":                     {5 * time.Second, known(good), forge.CI{}, nil, nil, "waiting", "further checks", ""},
		"neutral and skipped are well":                      {2 * time.Minute, known(run(1, "docs", "skipped"), run(2, "size", "neutral")), forge.CI{}, nil, nil, "green", "", ""},
		"one still runs":                                    {2 * time.Minute, known(good, run(1, "test", "")), forge.CI{}, nil, nil, "waiting", "not finished: test", ""},
		"one failed, one still runs":                        {2 * time.Minute, known(bad, run(2, "lint", "")), forge.CI{}, nil, nil, "waiting", "not finished: lint", ""},
		"one runs for ever":                                 {25 * time.Minute, known(good, run(1, "test", "")), forge.CI{}, nil, nil, "unclear", "not finished: test", ""},
		"green of the commit before":                        {2 * time.Minute, known(on(base, good), on(base, run(3, "test", "success"))), forge.CI{}, nil, nil, "none", "", ""},
		"green of the commit before, one running on this":   {2 * time.Minute, known(on(base, good), run(3, "test", "")), forge.CI{}, nil, nil, "waiting", "not finished: test", ""},
		"red of the commit before, green on this":           {2 * time.Minute, known(on(base, bad), good), forge.CI{}, nil, nil, "green", "", ""},
		"required, and green on the commit before only":     {2 * time.Minute, requiring(known(on(base, good)), "lint"), forge.CI{}, nil, nil, "waiting", "not reported: lint", ""},
		"an observation of the commit before":               {2 * time.Minute, of1(base, on(base, good)), forge.CI{}, nil, nil, "waiting", "were not read", ""},
		"an observation that is of another commit for ever": {time.Hour, of1(base, good), forge.CI{}, nil, nil, "unclear", "were not read", ""},
		"failed once": {2 * time.Minute, known(bad, good), forge.CI{}, nil, nil, "repeat again:test", "seen once", ""},
		"failed once, too early to know whether that is all": {5 * time.Second, known(bad), forge.CI{}, nil, nil, "waiting", "", ""},
		"asked for again, not begun":                         {3 * time.Minute, known(bad, good), forge.CI{}, []Rerun{again(bad)}, nil, "waiting", "asked for again", ""},
		"asked for again, running as a new attempt":          {3 * time.Minute, known(run(9, "test", ""), good), forge.CI{}, []Rerun{again(bad)}, nil, "waiting", "", ""},
		"failed again":                                          {3 * time.Minute, known(run(9, "test", "failure"), good), forge.CI{}, []Rerun{again(bad)}, nil, "red test=code", "failed: test (code)", "failed again when it was re-run"},
		"failed again, under the same id":                       {4 * time.Minute, known(func() forge.CIRun { r := bad; r.Completed = r.Completed.Add(time.Minute); return r }()), forge.CI{}, []Rerun{again(bad)}, nil, "red test=code", "", "failed again"},
		"passed when it was re-run":                             {3 * time.Minute, known(run(9, "test", "success"), good), forge.CI{}, []Rerun{again(bad)}, nil, "green test=flaky", "", "passed on the same commit"},
		"cannot be re-run":                                      {3 * time.Minute, known(bad), forge.CI{}, []Rerun{refused(bad)}, nil, "red test=code", "", "another App"},
		"nobody answers a re-run":                               {7*time.Minute + time.Second, known(bad), forge.CI{}, []Rerun{again(bad)}, nil, "red test=code", "", "nobody answered"},
		"one of two failures is flaky":                          {3 * time.Minute, known(run(8, "test", "success"), run(9, "lint", "failure")), forge.CI{}, []Rerun{again(bad), again(run(2, "lint", "failure"))}, nil, "red test=flaky lint=code", "failed: lint (code)", ""},
		"the re-run of the commit before is no evidence":        {3 * time.Minute, known(bad), forge.CI{}, []Rerun{again(on(base, bad))}, nil, "repeat again:test", "", ""},
		"the re-run of a namesake is no evidence":               {3 * time.Minute, known(bad), forge.CI{}, []Rerun{again(func() forge.CIRun { r := bad; r.Suite = 8; return r }())}, nil, "repeat again:test", "", ""},
		"fails on the base too":                                 {2 * time.Minute, known(bad, good), of1(base, on(base, run(4, "test", "failure"))), nil, nil, "red test=pre_existing", "", "base"},
		"passes on the base":                                    {2 * time.Minute, known(bad), of1(base, on(base, run(4, "test", "success"))), nil, nil, "repeat again:test", "", ""},
		"was cancelled on the base":                             {2 * time.Minute, known(bad), of1(base, on(base, run(4, "test", "cancelled"))), nil, nil, "repeat again:test", "", ""},
		"still runs on the base":                                {2 * time.Minute, known(bad), of1(base, on(base, run(4, "test", ""))), nil, nil, "repeat again:test", "", ""},
		"one of two of the name fails on the base":              {2 * time.Minute, known(bad), of1(base, on(base, run(4, "test", "failure")), on(base, run(5, "test", "success"))), nil, nil, "repeat again:test", "", ""},
		"another App's of the name fails on the base":           {2 * time.Minute, known(bad), of1(base, func() forge.CIRun { r := on(base, bad); r.App = "other"; return r }()), nil, nil, "repeat again:test", "", ""},
		"this commit taken for its own base":                    {2 * time.Minute, known(bad), known(bad), nil, nil, "repeat again:test", "", ""},
		"cancelled, and again":                                  {3 * time.Minute, known(run(9, "test", "cancelled")), forge.CI{}, []Rerun{again(run(1, "test", "cancelled"))}, nil, "red test=infrastructure", "", `ended as "cancelled"`},
		"timed out, then passed":                                {3 * time.Minute, known(run(9, "test", "success")), forge.CI{}, []Rerun{again(run(1, "test", "timed_out"))}, nil, "green test=flaky", "", ""},
		"did not start, and cannot be re-run":                   {3 * time.Minute, known(run(1, "test", "startup_failure")), forge.CI{}, []Rerun{refused(run(1, "test", "startup_failure"))}, nil, "red test=infrastructure", "", ""},
		"stale":                                                 {3 * time.Minute, known(run(1, "test", "stale")), forge.CI{}, []Rerun{refused(run(1, "test", "stale"))}, nil, "red test=infrastructure", "", ""},
		"a conclusion that nobody has heard of":                 {3 * time.Minute, known(run(1, "test", "exploded")), forge.CI{}, []Rerun{refused(run(1, "test", "exploded"))}, nil, "red test=infrastructure", "", ""},
		"waits for a person":                                    {2 * time.Minute, known(run(1, "deploy", "action_required")), forge.CI{}, nil, nil, "red deploy=infrastructure", "", "action_required"},
		"the output names the runner":                           {3 * time.Minute, known(saying(bad, "The runner has received a shutdown signal.")), forge.CI{}, []Rerun{refused(saying(bad, "The runner has received a shutdown signal."))}, nil, "red test=infrastructure", "", "names the machine"},
		"the log names the network":                             {3 * time.Minute, known(bad), forge.CI{}, []Rerun{refused(bad)}, map[int64]string{1: "fatal: unable to access 'https://x/': Could not resolve host: x"}, "red test=infrastructure", "", "unable to access"},
		"a test that expects a refused connection":              {3 * time.Minute, known(bad), forge.CI{}, []Rerun{refused(bad)}, map[int64]string{1: "want connection refused, got timeout of the runner pool"}, "red test=code", "", ""},
		"failed, and a required name is missing":                {3 * time.Minute, requiring(known(run(9, "test", "failure")), "e2e"), forge.CI{}, []Rerun{again(bad)}, nil, "red test=code", "", ""},
		"all fail on the base but one, which is ours":           {3 * time.Minute, known(bad, run(9, "lint", "failure")), of1(base, on(base, bad)), []Rerun{refused(run(9, "lint", "failure"))}, nil, "red test=pre_existing lint=code", "", ""},
		"a re-run near the end of the time gets its own":        {26 * time.Minute, known(run(9, "test", "")), forge.CI{}, []Rerun{again(bad)}, nil, "waiting", "", ""},
		"a re-run that never ends":                              {27 * time.Minute, known(run(9, "test", "")), forge.CI{}, []Rerun{again(bad)}, log, "unclear", "not finished: test", ""},
		"a refused re-run does not lengthen the time of others": {25 * time.Minute, known(bad, run(2, "lint", "")), forge.CI{}, []Rerun{refused(bad)}, nil, "unclear", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(Observation{Now: pushed.Add(test.after), SHA: head, Pushed: pushed, Head: test.head, Base: test.base, Reruns: test.reruns, Logs: test.logs}, knobs)
			if got := told(v); got != test.want {
				t.Fatalf("%s, want %s: %s", got, test.want, v.Cause)
			}
			if !strings.Contains(v.Cause, test.cause) {
				t.Errorf("cause %q", v.Cause)
			}
			if test.evident != "" && !strings.Contains(v.Failures[0].Evidence, test.evident) {
				t.Errorf("evidence %q", v.Failures[0].Evidence)
			}
			if v.State == Waiting && (!v.Again.After(pushed.Add(test.after)) || v.Again.After(pushed.Add(test.after+knobs.Poll))) {
				t.Errorf("again at %s", v.Again)
			}
		})
	}
}

func TestTheNextLookIsNotAfterTheEnd(t *testing.T) {
	o := Options{Wait: 70 * time.Second, Poll: time.Minute, Grace: 45 * time.Second}
	for after, want := range map[time.Duration]time.Duration{0: 45 * time.Second, 50 * time.Second: 70 * time.Second} {
		v := Judge(Observation{Now: pushed.Add(after), SHA: head, Pushed: pushed, Head: requiring(known(run(1, "lint", "success")), "test")}, o)
		if v.State != Waiting || !v.Again.Equal(pushed.Add(want)) {
			t.Errorf("after %s: %s at %s", after, v.State, v.Again.Sub(pushed))
		}
	}
}

// A scene is any observation.
func scene(t *rapid.T) Observation {
	runs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) forge.CIRun {
		r := run(rapid.Int64Range(1, 6).Draw(t, "id"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"),
			rapid.SampledFrom([]string{"", "success", "skipped", "failure", "cancelled", "action_required"}).Draw(t, "conclusion"))
		return on(rapid.SampledFrom([]string{head, head, base}).Draw(t, "sha"), r)
	}), 0, 5)
	in := Observation{
		SHA: head, Pushed: pushed, Now: pushed.Add(time.Duration(rapid.IntRange(0, 60*60).Draw(t, "after")) * time.Second),
		Head: forge.CI{SHA: rapid.SampledFrom([]string{head, head, head, base}).Draw(t, "head"), Runs: runs.Draw(t, "runs"),
			Configured: rapid.Bool().Draw(t, "configured"), Required: rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "z"}), rapid.ID).Draw(t, "required")},
		Base: forge.CI{SHA: base, Runs: runs.Draw(t, "base")},
	}
	in.Head.Configured = in.Head.Configured || len(in.Head.Runs) > 0
	for _, r := range runs.Draw(t, "reruns") {
		if r.Status != "completed" || passed(r) {
			continue
		}
		again := Rerun{Run: r, At: pushed.Add(time.Duration(rapid.IntRange(0, 600).Draw(t, "at")) * time.Second)}
		again.Refused = rapid.SampledFrom([]string{"", "no"}).Draw(t, "refused")
		in.Reruns = append(in.Reruns, again)
	}
	return in
}

func TestWhateverIsObserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := scene(t)
		v := Judge(in, knobs)
		ours := slices.DeleteFunc(slices.Clone(in.Head.Runs), func(r forge.CIRun) bool { return r.SHA != head })
		switch v.State {
		case Green:
			for _, r := range ours {
				if !passed(r) {
					t.Fatalf("green with %+v", r)
				}
			}
			for _, name := range in.Head.Required {
				if !slices.ContainsFunc(ours, func(r forge.CIRun) bool { return r.Name == name }) {
					t.Fatalf("green without %s", name)
				}
			}
			if len(ours) == 0 || in.Head.SHA != head || in.Now.Before(pushed.Add(DefaultGrace)) {
				t.Fatal("green of nothing")
			}
		case None:
			if len(ours) > 0 || len(in.Head.Required) > 0 || in.Head.SHA != head || in.Head.Configured && in.Now.Before(pushed.Add(DefaultGrace)) {
				t.Fatal("none, with something there")
			}
		case Waiting:
			if !v.Again.After(in.Now) || !in.Now.Before(pushed.Add(600*time.Second+knobs.Wait)) {
				t.Fatalf("waits until %s", v.Again)
			}
		case Red:
			for _, f := range v.Of(Code) {
				if f.Run.Conclusion != "failure" || f.Run.SHA != head {
					t.Fatalf("code: %+v", f)
				}
				if !slices.ContainsFunc(in.Reruns, func(a Rerun) bool { return a.Run.SHA == head && a.Run.Name == f.Run.Name }) {
					t.Fatalf("code without evidence: %+v", f)
				}
			}
			if len(v.Of(Flaky)) == len(v.Failures) {
				t.Fatal("red of nothing")
			}
		case Repeat:
			for _, r := range v.Repeat {
				if slices.ContainsFunc(in.Reruns, func(a Rerun) bool { return a.Run.SHA == head && a.Run.Name == r.Name }) {
					t.Fatalf("re-run twice: %+v", r)
				}
			}
		case Unclear:
		default:
			t.Fatalf("state %q", v.State)
		}
		// What other commits' runs say changes nothing.
		in.Head.Runs = ours
		if other := Judge(in, knobs); told(other) != told(v) {
			t.Fatalf("%s, and without the runs of other commits %s", told(v), told(other))
		}
	})
}

func ExampleJudge() {
	v := Judge(Observation{Now: pushed, SHA: head, Pushed: pushed, Head: forge.CI{SHA: head}}, knobs)
	fmt.Println(v.State)
	// Output: none
}
