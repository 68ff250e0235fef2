package review

import (
	"embed"
	"fmt"
	"slices"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

//go:embed prompts/*.md
var prompts embed.FS

var (
	readTools = []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep}
	tools     = append(slices.Clone(readTools), runtime.Bash)
)

// LensRole is the name of the role that every lens is asked as.
const LensRole = "lens"

// A Lens looks for one kind of fault.
type Lens struct {
	Name  string
	About string // what it looks at, in one line
	// Whole says that the lens judges how the parts of a change fit together: a
	// large one is not cut into chunks for it.
	Whole bool
	role  agent.Role[Subject, Remarks]
	brief string // what a repository's own lens looks for, by its word
}

// Lenses are the default ones. Each is asked for two or three checks, because
// narrow agents find more.
func Lenses() []Lens {
	return []Lens{
		lens("correctness", "looks whether code does what it says."),
		lens("removed_behaviour", "looks for what worked before a change and does not after it."),
		whole(lens("cross_file", "looks whether the parts of a change still fit each other and their callers.")),
		lens("security", "looks for what somebody can do that they should not."),
		lens("concurrency_resources", "looks for what breaks under load or with bad timing."),
		lens("performance", "looks for what becomes slow or large when the input grows."),
		whole(lens("tests", "looks whether the tests would notice if the code were wrong.")),
		whole(lens(intent, "looks whether a change does what was asked for.")),
		lens("maintainability", "looks for what will mislead whoever changes the code next."),
		lens("undirected", "looks for anything that the other lenses have no name for."),
	}
}

// auditor is asked when the lenses are done.
var auditor = whole(lens("audit", "looks for what all the other lenses missed."))

// intent compares the change with what was asked for: without a goal there is
// nothing for it to do.
const intent = "intent"

func lens(name, about string) Lens {
	return Lens{Name: name, About: about, role: agent.Role[Subject, Remarks]{
		Name: LensRole, Tools: tools, Prompt: agent.Load(prompts, "lens_"+name, "lens", "evidence"), Check: checkRemarks,
	}}
}

func whole(l Lens) Lens {
	l.Whole = true
	return l
}

// Subject is what a lens gets.
type Subject struct {
	Goal        string
	Criteria    []string
	Diff        string // empty when it is too large: then there is an outline
	Outline     string
	Part, Parts int      // from 1; Parts is 1 when the diff is whole
	Incremental bool     // the diff begins where the last review ended
	Guide       string   // of the repository: how it wants to be reviewed
	Brief       string   // of a repository's own lens: what it looks for
	Known       []string // what others found, for the audit
	Evidence    evidence.Result
}

// Remarks is what a lens answers.
type Remarks struct {
	Findings []Remark `json:"findings"`
}

// A Remark is one fault that a lens claims.
type Remark struct {
	finding.Finding
	EndLine         int          `json:"end_line,omitempty"`
	Side            finding.Side `json:"side,omitempty"` // old: the lines were removed
	Quote           string       `json:"quote,omitempty"`
	FailureScenario string       `json:"failure_scenario,omitempty"`
	Replacement     string       `json:"replacement,omitempty"` // of exactly the quoted lines
}

// checkRemarks wants remarks that can be placed, ranked and told apart.
func checkRemarks(_ Subject, out Remarks) (problems []string) {
	complain := func(i int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("findings[%d].", i)+fmt.Sprintf(format, args...))
	}
	for i, r := range out.Findings {
		if !r.Severity.Known() {
			complain(i, "severity is %q: use critical, high, medium or low", r.Severity)
		}
		if r.Title == "" || r.Claim == "" {
			complain(i, "title and claim must not be empty")
		}
		if r.StartLine < 0 || r.EndLine != 0 && r.EndLine < r.StartLine {
			complain(i, "start_line is %d and end_line %d: lines count from 1, and the end is not before the start", r.StartLine, r.EndLine)
		}
		if r.Side != finding.NewSide && r.Side != finding.OldSide {
			complain(i, "side is %q: leave it out, or use old for lines that were removed", r.Side)
		}
	}
	return problems
}

// Verifier tries to refute what lenses claim. It is not told who claims it.
var Verifier = agent.Role[Docket, Verdicts]{
	Name: "review_verifier", Model: "lens", Tools: tools, Prompt: agent.Load(prompts, "review_verifier", "evidence"), Check: checkVerdicts,
}

// Docket is what the Verifier gets.
type Docket struct {
	Claims   []Claim
	Diff     string // at the places of the claims; long ones are cut, and say so
	Evidence evidence.Result
}

// A Claim is a finding to be refuted.
type Claim struct {
	ID string `json:"id"` // f1, f2, …
	Remark
}

// Verdicts is the Verifier's answer, one for each claim.
type Verdicts struct {
	Verdicts []Verdict `json:"verdicts"`
}

// A Verdict is what came of the attempt to refute one claim.
type Verdict struct {
	ID         string          `json:"id"`
	Verdict    finding.Verdict `json:"verdict"`
	Confidence int             `json:"confidence"` // per cent
	Reason     string          `json:"reason"`
	Path       string          `json:"path,omitempty"`  // of the quote
	Quote      string          `json:"quote,omitempty"` // of what contradicts or shows the fault
	Witness    string          `json:"witness,omitempty"`
}

// checkVerdicts wants exactly one verdict on each claim.
func checkVerdicts(in Docket, out Verdicts) (problems []string) {
	given := map[string]int{}
	for i, v := range out.Verdicts {
		given[v.ID]++
		switch v.Verdict {
		case finding.Confirmed, finding.Rejected, finding.Uncertain:
		default:
			problems = append(problems, fmt.Sprintf("verdicts[%d].verdict is %q: use confirmed, rejected or uncertain", i, v.Verdict))
		}
		if v.Confidence < 0 || v.Confidence > 100 {
			problems = append(problems, fmt.Sprintf("verdicts[%d].confidence is %d: use 0 to 100", i, v.Confidence))
		}
	}
	for _, c := range in.Claims {
		if n := given[c.ID]; n != 1 {
			problems = append(problems, fmt.Sprintf("claim %s has %d verdicts, and needs one", c.ID, n))
		}
	}
	return problems
}
