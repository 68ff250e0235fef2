package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
)

// A critic is the model behind every lens and verifier. It knows some lines that
// are wrong and names them where it is shown them; it confirms a claim as long as
// what it quotes is in the change.
type critic struct {
	mu   sync.Mutex
	hear map[string]func(lens string, req modeltest.Request) *modeltest.Turn // by a text in the request; nil leaves it to the critic
}

// A wrongLine is a line with a fault, and what a lens says of it.
type wrongLine struct {
	line   string
	lenses []string
	remark review.Remark
}

var wrongLines = []wrongLine{
	{"echo hello $name", []string{"Correctness", "Anything"}, review.Remark{
		Finding:         finding.Finding{Severity: finding.High, Path: "greet.sh", StartLine: 90, Title: "An unset name is not noticed", Claim: "Without a name it greets nobody."},
		FailureScenario: "Run it without name set.", Replacement: `echo "hello ${name:?}"`,
	}},
	{"rm -rf $dir/*", []string{"Security"}, review.Remark{
		Finding:         finding.Finding{Severity: finding.Critical, Path: "clean.sh", StartLine: 2, Title: "An empty dir removes everything", Claim: "With dir empty it removes what is below the root."},
		FailureScenario: "Run it without dir set.",
	}},
	{"name=$1", []string{"Across files"}, review.Remark{
		Finding: finding.Finding{
			Severity: finding.Medium, Path: "check.sh", StartLine: 1, Title: "The check still greets nobody",
			Claim: "check.sh calls greet.sh without the name that it needs now.", Suggestion: "Give it a name.",
		},
		FailureScenario: "Run check.sh.",
	}},
	{"sleep 1", []string{"Performance"}, review.Remark{
		Finding:         finding.Finding{Severity: finding.Low, Path: "greet.sh", StartLine: 4, Title: "It waits for nothing", Claim: "Each greeting takes a second."},
		FailureScenario: "Greet 60 people.",
	}},
	{"set -e", []string{"Removed behaviour"}, review.Remark{
		Finding:         finding.Finding{Severity: finding.High, Path: "greet.sh", StartLine: 2, Title: "It stops at errors", Claim: "Greetings after a wrong one are lost."},
		FailureScenario: "Greet a wrong one.",
	}},
}

var (
	fenced  = regexp.MustCompile(`(?s)<data name="([a-z ]+)">\n(.*?)\n</data>`)
	checkOf = regexp.MustCompile(`What you look for:\s+([^:]+):`)
)

func (c *critic) play(req modeltest.Request) modeltest.Turn {
	role, lens, text := roleOf(req), "", req.Text()
	if found := checkOf.FindStringSubmatch(req.System.String()); found != nil {
		lens = found[1]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for word, answer := range c.hear {
		if strings.Contains(text, word) {
			if turn := answer(lens, req); turn != nil {
				return *turn
			}
		}
	}
	given := map[string]string{}
	for _, f := range fenced.FindAllStringSubmatch(text, -1) {
		given[f[1]] = "\n" + f[2] + "\n"
	}
	switch {
	case lens != "":
		return use("answer", look(lens, given["diff"]))
	case role == "":
		return use("answer", judge(given["claims"], given["diff"]))
	}
	return use("answer", jsonText(company[role+".json"]))
}

// on has the critic answer otherwise where a request has the word in it.
func (c *critic) on(word string, answer func(lens string, req modeltest.Request) *modeltest.Turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hear == nil {
		c.hear = map[string]func(string, modeltest.Request) *modeltest.Turn{}
	}
	c.hear[word] = answer
}

// hangs lets some lenses of a review never answer.
func (c *critic) hangs(t *testing.T, word string, lenses ...string) {
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	c.on(word, func(lens string, _ modeltest.Request) *modeltest.Turn {
		if !slices.Contains(lenses, lens) {
			return nil
		}
		return &modeltest.Turn{Wait: never}
	})
}

// look is what a lens finds in a diff.
func look(lens, diff string) review.Remarks {
	out := review.Remarks{Findings: []review.Remark{}}
	for _, f := range wrongLines {
		for _, name := range f.lenses {
			if name == lens && strings.Contains(diff, "\n+"+f.line+"\n") {
				r := f.remark
				if r.Path != "check.sh" { // which the change does not touch
					r.Quote = f.line
				}
				out.Findings = append(out.Findings, r)
			}
		}
	}
	return out
}

// judge is what a verifier makes of claims.
func judge(claims, diff string) review.Verdicts {
	var all []review.Claim
	if err := json.Unmarshal([]byte(claims), &all); err != nil {
		panic(fmt.Sprintf("the claims are no JSON: %v\n%s", err, claims))
	}
	out := review.Verdicts{}
	for _, c := range all {
		v := review.Verdict{ID: c.ID, Verdict: finding.Confirmed, Confidence: 95, Reason: "Nothing stops it.", Quote: c.Quote, Path: c.Path}
		switch {
		case c.Title == "It stops at errors":
			v.Verdict, v.Reason = finding.Rejected, "Nobody greets more than one at a time."
		case c.Quote != "" && !strings.Contains(diff, "\n+"+c.Quote+"\n"):
			v.Verdict, v.Reason, v.Quote = finding.Rejected, "The line is not there any more.", ""
		}
		out.Verdicts = append(out.Verdicts, v)
	}
	return out
}

// agents are those that the critic is the model of.
func (c *critic) agents(t testing.TB) app.Agents {
	t.Helper()
	model := modeltest.New(t, c.play)
	return app.Agents{Runtime: "native", Environ: append(model.Env(), model.Secret())}
}
