package review

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files is the content of a repository by path; "" removes a file.
type files map[string]string

// history is a user's repository and the mirror that has what it has. It is a
// Site whose agents need no worktree.
type history struct {
	t      testing.TB
	dir    string
	mirror *repo.Mirror
}

func newHistory(t testing.TB) *history {
	t.Helper()
	h := &history{t: t, dir: filepath.Join(t.TempDir(), "repo")}
	var err error
	if h.mirror, err = repo.Open(t.Context(), filepath.Join(t.TempDir(), "mirror")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.git("init", "-q", "-b", "main")
	return h
}

func (h *history) git(args ...string) {
	h.t.Helper()
	cmd := exec.CommandContext(h.t.Context(), "git", args...)
	cmd.Dir = h.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// commit makes a commit of changed files.
func (h *history) commit(changed files) string {
	h.t.Helper()
	for name, text := range changed {
		path := filepath.Join(h.dir, name)
		err := os.RemoveAll(path)
		if text != "" && err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if text != "" && err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	h.git("add", "-A")
	h.git("commit", "-q", "--allow-empty", "-m", "change")
	commit, err := h.mirror.Fetch(h.t.Context(), repo.Remote{URL: h.dir}, "main")
	if err != nil {
		h.t.Fatal(err)
	}
	return commit
}

func (h *history) Changed(ctx context.Context, base, head string) ([]repo.Change, error) {
	return h.mirror.Changed(ctx, base, head)
}

func (h *history) Patch(ctx context.Context, base, head string) (string, error) {
	return h.mirror.Diff(ctx, base, head, 64<<20)
}

func (h *history) File(ctx context.Context, commit, path string) ([]byte, error) {
	return h.mirror.File(ctx, commit, path)
}

func (h *history) Files(ctx context.Context, commit string, paths []string) ([][]byte, error) {
	return h.mirror.Files(ctx, commit, paths)
}

func (h *history) Desk(string, string) agent.Workspace { return agenttest.Desk{} }

// script says what the agents of a review answer.
type script struct {
	remarks map[string][]Remark           // by slot
	fails   map[string]error              // by slot, of lenses and verifiers
	verdict func(Claim) Verdict           // nil: confirmed with confidence 90
	before  func(context.Context, string) // hears each call, by slot
}

const key = "verify-1/review"

// slotOf is the slot that a call is of: its key without the review's and the
// role's part.
func slotOf(c runtime.Call) string {
	_, slot, _ := strings.Cut(c.Step, "/review/")
	slot, _, _ = strings.Cut(slot, "/"+c.Role)
	return slot
}

var claimsFence = regexp.MustCompile(`(?s)<data name="claims">\n(.*?)\n</data>`)

func (s *script) play(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
	slot := slotOf(c)
	if s.before != nil {
		s.before(ctx, slot)
	}
	if ctx.Err() != nil {
		return runtime.Result{}, context.Cause(ctx)
	}
	if err := s.fails[slot]; err != nil {
		return runtime.Result{}, err
	}
	if c.Role == LensRole {
		return agenttest.JSON(Remarks{Findings: append([]Remark{}, s.remarks[slot]...)}), nil
	}
	var claims []Claim
	if err := json.Unmarshal([]byte(claimsFence.FindStringSubmatch(c.Prompt)[1]), &claims); err != nil {
		return runtime.Result{}, err
	}
	var out Verdicts
	for _, claim := range claims {
		v := Verdict{Verdict: finding.Confirmed, Confidence: 90, Reason: "It happens."}
		if s.verdict != nil {
			v = s.verdict(claim)
		}
		v.ID = claim.ID
		out.Verdicts = append(out.Verdicts, v)
	}
	return agenttest.JSON(out), nil
}

// crashed is an agent that gives no answer, for good.
var crashed = &runtime.Error{Class: runtime.Refused, Reason: "it crashed"}

// review runs one review on a journal.
func (s *script) review(t *testing.T, log *steptest.Log, at Site, target Target, o Options) (Result, *agenttest.Agents, error) {
	t.Helper()
	agents := agenttest.New(s.play)
	if target.Key == "" {
		target.Key = key
	}
	result, err := Run(t.Context(), agenttest.Crew(log.Open(t, step.Options{}), agents), at, target, o)
	return result, agents, err
}

// must is a review on a journal of its own that goes through.
func (s *script) must(t *testing.T, at Site, target Target, o Options) (Result, *agenttest.Agents) {
	t.Helper()
	result, agents, err := s.review(t, new(steptest.Log), at, target, o)
	if err != nil {
		t.Fatal(err)
	}
	accounted(t, result)
	return result, agents
}

// accounted checks what holds of every result.
func accounted(t *testing.T, r Result) {
	t.Helper()
	if p := r.Receipt; p.Planned != p.Completed+p.Failed+p.TimedOut+p.Canceled+p.Skipped {
		t.Errorf("the receipt does not add up: %+v", p)
	}
	for _, f := range r.Open {
		if !slices.Contains(r.Findings, f) {
			t.Errorf("open, and not among the findings: %v", f)
		}
	}
	ids := map[string]bool{}
	for _, f := range r.Findings {
		if f.ID == "" || ids[f.ID] {
			t.Errorf("id %q is empty or taken", f.ID)
		}
		ids[f.ID] = true
		if f.Verdict == "" || f.State == "" {
			t.Errorf("without verdict or state: %+v", f)
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Result
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if second, err := json.Marshal(again); err != nil || !bytes.Equal(second, text) {
		t.Errorf("the result changes on its way through JSON:\n%s\n%s", text, second)
	}
}

// slotsOf are the slots of the calls, sorted.
func slotsOf(a *agenttest.Agents) []string {
	var out []string
	for _, c := range a.Calls() {
		out = append(out, slotOf(c))
	}
	slices.Sort(out)
	return out
}

func remark(severity finding.Severity, path string, line int, quote, title, claim string) Remark {
	return Remark{
		Finding: finding.Finding{Severity: severity, Path: path, StartLine: line, Title: title, Claim: claim},
		Quote:   quote, FailureScenario: "Run it.",
	}
}
