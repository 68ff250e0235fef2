package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// A ReviewBench is a pull request as the benchmark ReviewBench hands it to an
// agent, and the answer that it wants. The contract is AGENT_CONTRACT.md of
// https://github.com/review-bench/ReviewBench (read at 6ff0673), and the checks
// that scripts/try-agent.sh and scripts/harbor/verify.ts there make of an answer.
type ReviewBench struct {
	Out   string // RB_OUT: the file that is written
	Agent string // RB_AGENT: the name in it

	Focus    []string // lenses that look; nil: as configured
	Severity string   // the least that counts; empty: as configured

	pull     benchPull
	files    []*gitdiff.File // of diff.patch
	checkout string
}

// benchPull is pr.json.
type benchPull struct {
	Repo   string `json:"repo"` // address
	Number int    `json:"pr_number"`
	Base   string `json:"base"`
	Head   string `json:"head"`
	NWO    string `json:"nwo"` // owner/name
	Title  string `json:"title"`
	Body   string `json:"body"`
}

// benchAnswer is what is written to RB_OUT.
type benchAnswer struct {
	Pull struct {
		Repo   string `json:"repo"`
		Number int    `json:"pr_number"`
		Base   string `json:"base"`
		Head   string `json:"head"`
	} `json:"pr"`
	Agent    string         `json:"agent"`
	Findings []benchFinding `json:"findings"`
}

type benchFinding struct {
	File      string `json:"file"`
	StartLine int    `json:"start_line"` // in the file at the head
	EndLine   int    `json:"end_line"`
	Message   string `json:"message"`
	Producer  string `json:"producer"`
}

// ReadReviewBench reads a directory with diff.patch, pr.json and the checkout: the
// files in it or in its folder pr, the checkout in its folder repo or checkout. What
// the environment says of the pull request has to be what pr.json says.
func ReadReviewBench(dir string, environ []string) (ReviewBench, error) {
	b := ReviewBench{Out: lookup(environ, "RB_OUT"), Agent: cmp.Or(lookup(environ, "RB_AGENT"), "slipway")}
	if b.Out == "" {
		return b, errors.New("RB_OUT is not set: it names the file that the findings are written to")
	}
	if info, err := os.Stat(filepath.Dir(b.Out)); err != nil || !info.IsDir() {
		return b, fmt.Errorf("RB_OUT: there is no directory %s", filepath.Dir(b.Out))
	}
	if err := b.readPull(dir); err != nil {
		return b, err
	}
	for name, want := range map[string]string{"RB_PR_NUMBER": strconv.Itoa(b.pull.Number), "RB_BASE": b.pull.Base, "RB_HEAD": b.pull.Head} {
		if said := lookup(environ, name); said != "" && said != want {
			return b, fmt.Errorf("%s is %s, and pr.json says %s", name, said, want)
		}
	}
	patch, err := inBench(dir, "diff.patch")
	if err != nil {
		return b, err
	}
	b.files, _, err = gitdiff.Parse(bytes.NewReader(patch))
	switch {
	case err != nil:
		return b, fmt.Errorf("diff.patch is not a diff of git: %w", err)
	case len(b.files) == 0:
		return b, errors.New("diff.patch changes no file")
	}
	for _, name := range []string{"repo", "checkout"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
			b.checkout = filepath.Join(dir, name)
			return b, nil
		}
	}
	return b, fmt.Errorf("%s has no folder repo or checkout: the repository at the head of the pull request", dir)
}

// inBench reads a file of the pull request.
func inBench(dir, name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(dir, "pr", name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no file %s, and its folder pr has none", dir, name)
	}
	return text, err
}

var wholeHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

func (b *ReviewBench) readPull(dir string) error {
	text, err := inBench(dir, "pr.json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &b.pull); err != nil {
		return fmt.Errorf("pr.json: %w", err)
	}
	p := &b.pull
	p.Repo = cmp.Or(p.Repo, "https://github.com/"+p.NWO)
	switch {
	case p.Number < 1:
		return fmt.Errorf("pr.json: pr_number is %d", p.Number)
	case !wholeHash.MatchString(p.Base) || !wholeHash.MatchString(p.Head):
		return fmt.Errorf("pr.json: base %q and head %q: want whole hashes of commits", p.Base, p.Head)
	}
	return nil
}

// Run reviews the pull request in a temporary directory and writes the answer. The
// account is returned with what could not be said in it: findings that have no line
// at the head. A review in which nobody answered writes nothing.
func (b ReviewBench) Run(ctx context.Context, conf config.Server, agents Agents, log *slog.Logger) (_ report.Review, unsaid []finding.Entry, err error) {
	dir, err := os.MkdirTemp("", "slipway-reviewbench-")
	if err != nil {
		return report.Review{}, nil, fmt.Errorf("make a directory for the review: %w", err)
	}
	defer func() { err = errors.Join(err, repo.RemoveAll(context.WithoutCancel(ctx), dir)) }()
	change, err := b.stage(ctx, dir)
	if err != nil {
		return report.Review{}, nil, err
	}
	bench, err := OpenBench(ctx, dir, dayOf(conf), "limits.usd_per_day")
	if err != nil {
		return report.Review{}, nil, err
	}
	defer func() { _ = bench.Close() }() // it is removed
	panel, err := bench.Panel(conf, agents, log)
	if err != nil {
		return report.Review{}, nil, err
	}
	final, err := panel.Review(ctx, change)
	if err != nil {
		return final, nil, err
	}
	if final.State == report.ReviewFailed || final.State == report.ReviewCanceled || len(final.Gaps) > 0 && len(final.Gaps) >= final.Agents {
		cause := final.Cause
		if len(final.Gaps) > 0 {
			cause = cmp.Or(cause, final.Gaps[0].Agent+": "+final.Gaps[0].Reason)
		}
		return final, nil, fmt.Errorf("the review could not be done: %s", cause)
	}
	answer, unsaid := b.answer(final)
	return final, unsaid, b.write(answer)
}

// stage takes both sides of the change from the checkout, whose history may be
// short. The base is where the head left it, as in a diff with three dots.
func (b ReviewBench) stage(ctx context.Context, dir string) (Change, error) {
	c := Change{
		Review: "r-bench", Repo: "reviewbench", Base: baseRef, Head: "refs/slipway/head",
		Goal: strings.TrimSpace(b.pull.Title + "\n\n" + b.pull.Body), Focus: b.Focus, Severity: b.Severity,
	}
	source, err := repo.OpenSource(ctx, b.checkout)
	if err != nil {
		return c, err
	}
	at, err := source.Commit(ctx, "HEAD")
	if err != nil {
		return c, err
	}
	if at != b.pull.Head {
		return c, fmt.Errorf("%s is at %s, and the head in pr.json is %s", b.checkout, at, b.pull.Head)
	}
	if _, err := source.Commit(ctx, b.pull.Base); err != nil {
		return c, fmt.Errorf("the base in pr.json: %w", err)
	}
	fork, err := source.MergeBase(ctx, b.pull.Base, b.pull.Head)
	if err != nil {
		return c, err
	}
	if c.Stage, err = repo.OpenStage(ctx, filepath.Join(dir, "stage")); err != nil {
		return c, err
	}
	base, err := c.Stage.Take(ctx, c.Base, source, fork, "")
	if err != nil {
		return c, err
	}
	head, err := c.Stage.Take(ctx, c.Head, source, b.pull.Head, base)
	if err != nil {
		return c, err
	}
	changed, err := c.Stage.Changed(ctx, base, head)
	if err != nil {
		return c, err
	}
	for _, f := range b.files {
		name := cmp.Or(f.NewName, f.OldName)
		if !slices.ContainsFunc(changed, func(c repo.Change) bool { return c.Path == name }) {
			return c, fmt.Errorf("diff.patch changes %s, and the commits in pr.json do not: they are two changes", name)
		}
	}
	return c, nil
}

// answer is what the review found, in the benchmark's words.
func (b ReviewBench) answer(r report.Review) (a benchAnswer, unsaid []finding.Entry) {
	a.Pull.Repo, a.Pull.Number, a.Pull.Base, a.Pull.Head = b.pull.Repo, b.pull.Number, b.pull.Base, b.pull.Head
	a.Agent, a.Findings = b.Agent, []benchFinding{}
	for _, e := range r.Open() {
		first, last, ok := b.atHead(e)
		if !ok {
			unsaid = append(unsaid, e)
			continue
		}
		var message []string
		for _, text := range []string{e.Title, e.Claim, e.FailureScenario} {
			if text = strings.TrimSpace(text); text != "" {
				message = append(message, text)
			}
		}
		a.Findings = append(a.Findings, benchFinding{
			File: e.Path, StartLine: first, EndLine: last, Message: strings.Join(message, "\n\n"), Producer: b.Agent,
		})
	}
	return a, unsaid
}

// atHead are the lines of a finding in the file at the head. One on lines that were
// removed is where they would be; one of a file as a whole is on its first line.
func (b ReviewBench) atHead(e finding.Entry) (first, last int, ok bool) {
	if e.Path == "" {
		return 0, 0, false
	}
	last = max(e.StartLine, e.EndLine, 1)
	first = max(e.StartLine, 1)
	gone := slices.ContainsFunc(b.files, func(f *gitdiff.File) bool { return f.IsDelete && f.OldName == e.Path })
	if e.Side != finding.OldSide || gone {
		return first, last, !gone
	}
	for _, f := range b.files {
		if f.OldName != e.Path {
			continue
		}
		for _, h := range f.TextFragments {
			if int64(first) >= h.OldPosition && int64(first) < h.OldPosition+h.OldLines {
				at := afterRemoved(h, int64(first))
				return at, at, true
			}
		}
	}
	return 0, 0, false
}

// afterRemoved is the line at the head that stands where an old line of the hunk
// stood.
func afterRemoved(h *gitdiff.TextFragment, old int64) int {
	at, now := h.OldPosition, h.NewPosition
	for _, l := range h.Lines {
		if at == old && l.Old() {
			break
		}
		if l.Old() {
			at++
		}
		if l.New() {
			now++
		}
	}
	return int(max(1, min(now, h.NewPosition+h.NewLines-1)))
}

// write replaces RB_OUT as a whole.
func (b ReviewBench) write(a benchAnswer) error {
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	tmp := b.Out + ".new"
	if err := os.WriteFile(tmp, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("RB_OUT: %w", err)
	}
	if err := os.Rename(tmp, b.Out); err != nil {
		return fmt.Errorf("RB_OUT: %w", err)
	}
	return nil
}
