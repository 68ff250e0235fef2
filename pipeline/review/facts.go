package review

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/repo"
)

// What code finds by itself: nobody has to refute it, and it is looked for anew
// in every review.

// The lenses that facts are from.
const (
	CommandsLens = "commands" // the engine's own commands, on head and on base
	DiffLens     = "diff"     // secrets, conflict markers, large binaries
)

func isFact(e finding.Entry) bool { return e.Lens == CommandsLens || e.Lens == DiffLens }

// maxBinary is the size from which a new binary is told of, in bytes.
const maxBinary = 1 << 20

// facts are all findings that need no agent.
func facts(s survey, t Target) []finding.Entry {
	var out []finding.Entry
	if t.Before != nil {
		out = append(out, failures(t.Evidence, *t.Before)...)
	}
	return append(out, scan(s)...)
}

// state takes facts into the ledger: those of an earlier review that are no
// longer true are fixed.
func (l *ledger) state(now []finding.Entry) {
	for i, old := range l.stated {
		if at := slices.IndexFunc(now, func(e finding.Entry) bool { return e.ID == old.ID }); at < 0 {
			if old.State.Live() {
				l.stated[i].State = finding.Fixed
			}
			continue
		} else if e := &now[at]; old.State != finding.Fixed {
			e.Number, e.Posted, e.State = old.Number, old.Posted, old.State
			if old.State == finding.New {
				e.State = finding.Open
			}
		} else {
			e.Number = old.Number
		}
	}
	l.stated = slices.DeleteFunc(l.stated, func(old finding.Entry) bool {
		return slices.ContainsFunc(now, func(e finding.Entry) bool { return e.ID == old.ID })
	})
	l.stated = append(l.stated, now...)
}

// fact is a finding of ours. Those of one review with the same words differ by n.
func fact(lens string, f finding.Finding, n int) finding.Entry {
	id := finding.Fingerprint(f.Path, lens, f.Title+" "+f.Claim)
	if n > 1 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return finding.Entry{
		Finding: f, ID: id, Lens: lens, Agreement: 1, Verdict: finding.Confirmed, Confidence: 100, State: finding.New,
		Reason: "seen by the engine, not by an agent",
	}
}

// failures are what fails on the head and not on the base.
func failures(head, base evidence.Result) []finding.Entry {
	var out []finding.Entry
	for _, c := range head.Commands {
		if c.Passed {
			continue
		}
		before, ran := outcomeOf(base, c.Name)
		title, claim := "", ""
		switch broken := newNames(before.Output, c.Output); {
		case !ran:
			continue // nothing to compare with: it may have been so before
		case before.Passed:
			title = fmt.Sprintf("%s fails", c.Line)
			claim = fmt.Sprintf("The %s command passes on the base and fails on the head.", c.Name)
		case len(broken) > 0:
			title = fmt.Sprintf("%s fails in more places", c.Line)
			claim = fmt.Sprintf("The %s command fails on the base too, and not in %s.", c.Name, strings.Join(broken, ", "))
		default:
			continue // shared with the base: not the change's
		}
		e := fact(CommandsLens, finding.Finding{Severity: finding.High, Title: title, Claim: claim}, 1)
		e.ID = finding.Fingerprint("", CommandsLens, c.Name)
		e.Witness = fmt.Sprintf("$ %s\n%s\nexit code %d", c.Line, c.Output, c.Exit)
		e.Outside = true
		out = append(out, e)
	}
	return out
}

func outcomeOf(r evidence.Result, name string) (evidence.CommandResult, bool) {
	i := slices.IndexFunc(r.Commands, func(c evidence.CommandResult) bool { return c.Name == name })
	if i < 0 {
		return evidence.CommandResult{}, false
	}
	return r.Commands[i], true
}

// failed finds the names of tests in what test programs print when they fail.
var failed = regexp.MustCompile(`(?m)^\s*(?:--- FAIL: (\S+)|FAILED (\S+)|not ok \d+ -? ?(.+)|(?:✕|✗|×) (.+?)(?: \(\d+ ?m?s\))?)\s*$`)

// cutOutput is the size from which an output may have lost its beginning, and
// with it names that are no news.
const cutOutput = 15 << 10

// newNames are the tests that fail in one output and not in the other.
func newNames(before, after string) []string {
	if len(before) >= cutOutput {
		return nil
	}
	known := namesOf(before)
	if len(known) == 0 {
		return nil // it failed in another way, which tells nothing of tests
	}
	return slices.DeleteFunc(namesOf(after), func(n string) bool { return slices.Contains(known, n) })
}

func namesOf(output string) []string {
	var out []string
	for line := range strings.Lines(output) {
		// Go prints a time after the name, which differs from run to run.
		line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), " (")
		for _, m := range failed.FindAllStringSubmatch(line, -1) {
			for _, name := range m[1:] {
				if name != "" && !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// secret is a credential by its shape. The name says what it opens.
type secret struct {
	name  string
	shape *regexp.Regexp
}

var secrets = []secret{
	{"a private key", regexp.MustCompile(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----`)},
	{"a token of GitHub", regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{36,}|ghs_\d+_[A-Za-z0-9_.-]{40,}|github_pat_[A-Za-z0-9_]{60,})`)},
	{"a key of AWS", regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}\b`)},
	{"a key of Google", regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}\b`)},
	{"a token of Slack", regexp.MustCompile(`\bxox[abeprs]-[A-Za-z0-9-]{20,}`)},
	{"a key of Anthropic", regexp.MustCompile(`\bsk-ant-[A-Za-z0-9_-]{32,}`)},
	{"a key of OpenAI", regexp.MustCompile(`\bsk-(?:proj-)?[A-Za-z0-9_-]{40,}`)},
	{"a key of Stripe", regexp.MustCompile(`\b[rs]k_live_[A-Za-z0-9]{20,}`)},
	{"a token of GitLab", regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20,}`)},
	{"a token of npm", regexp.MustCompile(`\bnpm_[A-Za-z0-9]{36}\b`)},
}

// marker begins the lines that git leaves in a conflict.
var marker = regexp.MustCompile(`^(?:<{7}|>{7}|\|{7}) `)

// scan looks at every added line, whatever the manifest says of its file: a
// secret in a lock file is one. What it found is never quoted.
func scan(s survey) []finding.Entry {
	var out []finding.Entry
	seen := map[string]int{}
	tell := func(f finding.Finding) {
		n := seen[f.Path+"\x00"+f.Title] + 1
		seen[f.Path+"\x00"+f.Title] = n
		e := fact(DiffLens, f, n)
		e.Anchor = s.whole.anchor(f.Path, false, f.StartLine, f.StartLine)
		out = append(out, e)
	}
	for _, f := range s.whole.files {
		added(f, func(line int, text string) {
			for _, k := range secrets {
				if k.shape.MatchString(text) {
					tell(finding.Finding{
						Severity: finding.Critical, Path: f.NewName, StartLine: line, Title: "The change adds " + k.name,
						Claim:      "Whoever can read the repository can use it, and removing the line does not take it out of the history.",
						Suggestion: "Revoke it, then remove it.",
					})
					return
				}
			}
			if marker.MatchString(text) {
				tell(finding.Finding{
					Severity: finding.High, Path: f.NewName, StartLine: line, Title: "A conflict marker is left in the file",
					Claim: "The line is what git writes where a merge was not finished.", Suggestion: "Finish the merge.",
				})
			}
		})
	}
	for _, p := range s.changed {
		if p.Status == repo.Added && p.New > maxBinary && isBinary(s.whole.byName[p.Path]) {
			tell(finding.Finding{
				Severity: finding.Low, Path: p.Path, Title: "The change adds a large binary file",
				Claim: fmt.Sprintf("It has %d KiB, which every clone carries from now on, also after it is removed.", p.New>>10),
			})
		}
	}
	return out
}

func isBinary(files []*gitdiff.File) bool {
	return slices.ContainsFunc(files, func(f *gitdiff.File) bool { return f.IsBinary })
}

// added visits the lines that a file gets, by their numbers.
func added(f *gitdiff.File, visit func(line int, text string)) {
	for _, h := range f.TextFragments {
		at := int(h.NewPosition)
		for _, l := range h.Lines {
			if l.Op == gitdiff.OpAdd {
				visit(at, strings.TrimRight(l.Line, "\r\n"))
			}
			if l.Op != gitdiff.OpDelete {
				at++
			}
		}
	}
}

// A Todo is a note to do something later.
type Todo struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// maxTodos bounds what is told of one change.
const maxTodos = 100

var todo = regexp.MustCompile(`\b(?:TODO|FIXME|XXX|HACK)\b.*`)

// todos are those that the change adds to files that are reviewed.
func todos(s survey) []Todo {
	var out []Todo
	for _, f := range s.whole.files {
		if !s.reviewed(f.NewName) {
			continue
		}
		added(f, func(line int, text string) {
			if note := todo.FindString(text); note != "" && len(out) < maxTodos {
				out = append(out, Todo{f.NewName, line, strings.TrimSpace(note[:min(len(note), 200)])})
			}
		})
	}
	return out
}

// code are the names of files that tests are written for.
var code = regexp.MustCompile(`\.(?:go|py|js|jsx|ts|tsx|mjs|rb|rs|java|kt|scala|swift|c|cc|cpp|h|hpp|cs|php|ex|exs|clj|hs|lua|dart)$`)

// test are the names of tests, and of what only they use.
var test = regexp.MustCompile(`(?i)(?:^|/)(?:tests?|spec|__tests__|testdata)/|[._-](?:test|spec)s?\.[a-z]+$|_test\.[a-z]+$|(?:^|/)test_[^/]*$|(?:Test|Tests|Spec)\.[a-z]+$`)

// untested are the files of code that a change adds lines to, where it touches no
// test.
func untested(s survey) []string {
	var out []string
	for _, f := range s.whole.files {
		if test.MatchString(f.NewName) || test.MatchString(f.OldName) {
			return nil
		}
		lines := 0
		added(f, func(int, string) { lines++ })
		if lines > 0 && code.MatchString(path.Base(f.NewName)) && s.reviewed(f.NewName) {
			out = append(out, f.NewName)
		}
	}
	return out
}
