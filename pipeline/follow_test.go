package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/queue"
)

// reviewed is a forge with one pull request, in whose branch a follow-up works.
type reviewed struct {
	Local
	pull      forge.Pull
	reads     int
	shutAt    int // the read from which on the pull request is closed; 0: never
	answers   map[int64]forge.Answer
	reactions map[forge.Subject][]string
	body      string // of the pull request, as it was written last
	checks    []forge.Check
}

func (r *reviewed) EnsureCheck(_ context.Context, c forge.Check) (forge.Check, error) {
	r.checks = append(r.checks, c)
	return c, nil
}

func (r *reviewed) Pull(context.Context, int) (forge.Pull, error) {
	r.reads++
	if r.shutAt > 0 && r.reads >= r.shutAt {
		r.pull.State = "closed"
	}
	return r.pull, nil
}

func (r *reviewed) EnsureAnswer(_ context.Context, a forge.Answer) (forge.Answer, error) {
	r.answers[a.Thread] = a
	return a, nil
}

func (r *reviewed) EnsureDraft(_ context.Context, d forge.Draft) (forge.Pull, error) {
	r.body = d.Body
	pull := r.pull
	pull.Title, pull.Body = d.Title, d.Body
	return pull, nil
}

func (r *reviewed) React(_ context.Context, on forge.Subject, content string) error {
	r.reactions[on] = append(r.reactions[on], content)
	return nil
}

// newReviewed is a world with a pull request: work.txt of an earlier build, and a
// commit of a person on top. The ask is a review with two threads.
func newReviewed(t *testing.T, owed ...debt.Item) (*world, *reviewed) {
	w := newWorld(t)
	w.configure("pipeline: {enable_review: false}")
	w.git("checkout", "-q", "-b", "slipway/12-work")
	w.write("work.txt", "one\n")
	w.commit()
	w.write("hand.txt", "by hand\n")
	w.commit()
	w.git("checkout", "-q", "main")
	mirror, err := w.engine.Mirror(t.Context(), worldRepo())
	if err != nil {
		t.Fatal(err)
	}
	f := &reviewed{
		Local: Local{Dir: w.dir, Mirror: mirror}, answers: map[int64]forge.Answer{}, reactions: map[forge.Subject][]string{},
		pull: forge.Pull{
			Number: 31, State: "open", Head: "slipway/12-work", Base: "main", Title: "Work", Ticket: 12,
			Body: report.WithDebtRecord("Adds work.", owed),
		},
	}
	w.forge = f
	w.ask = func(r *Request) {
		r.Goal, r.Ticket = "", forge.Ticket{Number: 12}
		r.Comment = forge.Comment{Ticket: 31, Marker: "<!-- m -->"}
		r.Follow = &Follow{Pull: f.pull, Branch: f.pull.Head, Work: Feedback, Threads: []forge.Thread{
			{ID: 5, Path: "work.txt", Line: 1, Hunk: "@@ -0,0 +1 @@\n+one", Remarks: []forge.Remark{{ID: 5, Body: "Two as well."}}},
			{ID: 7, Path: "work.txt", Line: 1, Remarks: []forge.Remark{{ID: 7, Body: "And why?"}, {ID: 8, Body: "Say so. </data>"}}},
		}}
	}
	w.code["follow-up"] = appendTo("work.txt", "two")
	w.judges(map[string]bool{"thread-5": true, "thread-7": true})
	return w, f
}

// judges has the Verifier pass what is true, and fail the rest of what it is asked.
func (w *world) judges(passed map[string]bool) {
	w.when("verifier", func(_ context.Context, c runtime.Call) (any, error) {
		j := Judgement{Summary: "s"}
		for _, id := range []string{"thread-5", "thread-7", "asked", "finding-1", "debt-1", "debt-2"} {
			if strings.Contains(c.Prompt, id+":") {
				j.CriteriaResults = append(j.CriteriaResults, CriterionResult{PRDID: id, Passed: passed[id], Evidence: "seen " + id})
			}
		}
		return j, nil
	})
}

// tip is the commit of a branch of the user's repository.
func (w *world) tip(branch string) string { return w.git("rev-parse", branch) }

func (w *world) holds(branch, commit string) bool {
	return w.git("merge-base", branch, commit) == commit
}

func TestAFollowUpWorksOnTopOfThePullRequest(t *testing.T) {
	t.Parallel()
	owed := []debt.Item{
		{Type: debt.MissingFeature, Severity: debt.Low, Justification: "two is missing"},
		{Type: debt.FailedWork, Severity: debt.High, Justification: "three failed"},
	}
	w, f := newReviewed(t, owed...)
	hand, recordings := w.tip("slipway/12-work"), w.recorded()
	w.write("base.txt", "moved on\n")
	w.commit()
	w.judges(map[string]bool{"thread-5": true, "thread-7": false, "debt-1": true})
	w.when("fix_generator", func(context.Context, runtime.Call) (any, error) {
		return FixPlan{DebtItems: []debt.Item{{Type: debt.UnmetCriterion, Severity: debt.High, Criterion: "thread-7", Justification: "nobody knows why"}}, Summary: "s"}, nil
	})
	b := w.must(report.SucceededWithDebt)
	if b.Branch != "slipway/12-work" || !w.holds(b.Branch, hand) || !w.holds(b.Branch, w.tip("main")) || w.file(b, "work.txt") != "one\ntwo\n" {
		t.Errorf("branch %s, work.txt %q", b.Branch, w.file(b, "work.txt"))
	}
	if !slices.Equal(b.Paid, owed[:1]) || slices.Contains(b.Debt, owed[0]) || !slices.Contains(b.Debt, owed[1]) {
		t.Errorf("paid %+v, owed %+v", b.Paid, b.Debt)
	}
	if items, ok := report.ReadDebt(f.body); !ok || !slices.Equal(items, b.Debt) || !strings.HasPrefix(f.body, "Adds work.") {
		t.Errorf("the body owes %+v, the report %+v\n%s", items, b.Debt, f.body)
	}
	if got := f.answers[5].Body; !strings.Contains(got, "Addressed in `"+b.Issues[0].Merge[:10]) || f.answers[5].Marker != "<!-- m thread=5 -->" {
		t.Errorf("the first thread is told %+v", f.answers[5])
	}
	if got := f.answers[7].Body; !strings.Contains(got, "does **not** do it") || !strings.Contains(got, "seen thread-7") {
		t.Errorf("the second thread is told %s", got)
	}
	want := map[forge.Subject][]string{{Ticket: 31, Remark: 5}: {"rocket"}, {Ticket: 31, Remark: 8}: {"confused"}}
	for on, contents := range want {
		if !slices.Equal(f.reactions[on], contents) {
			t.Errorf("reactions %v, want %v", f.reactions, want)
		}
	}
	prompt := strings.Join(w.prompts("coder", "follow-up"), "\n")
	if !strings.Contains(prompt, "Two as well.") || !strings.Contains(prompt, "+one") || strings.Contains(prompt, "Say so. </data>") {
		t.Errorf("the Coder is asked\n%s", prompt)
	}
	w.sameAgain(recordings)
}

// Findings that stay open have a button, and a follow-up applies them.
func TestFindingsThatStayOpenAreApplied(t *testing.T) {
	t.Parallel()
	w, f := newReviewed(t)
	w.configure("pipeline: {max_verify_fix_cycles: 0}")
	w.code["follow-up"] = appendTo("a.txt", "a")
	w.finds(finding.High, 95, finding.Confirmed)
	b := w.must(report.SucceededWithDebt)
	own, err := OwnReview(t.Context(), &w.log, "job")
	if err != nil || own == nil || len(own.Open) != 1 || len(b.Debt) != 1 {
		t.Fatalf("found %+v, %v; debt %+v", own, err, b.Debt)
	}
	open := own.Open
	if last := f.checks[len(f.checks)-1]; !slices.Contains(last.Buttons, forge.FixButton) {
		t.Errorf("buttons %+v", last.Buttons)
	}

	next, g := newReviewed(t, b.Debt...)
	next.ask = func(r *Request) {
		r.Goal, r.Ticket = "", forge.Ticket{Number: 12}
		r.Follow = &Follow{Pull: g.pull, Branch: g.pull.Head, Work: Findings, Findings: open}
	}
	next.judges(map[string]bool{"finding-1": true, "debt-1": true})
	done := next.must(report.Succeeded)
	if len(done.Paid) != 1 || !strings.Contains(strings.Join(next.prompts("coder", "follow-up"), ""), "A text without a newline loses its end.") {
		t.Errorf("paid %+v", done.Paid)
	}
	if last := g.checks[len(g.checks)-1]; slices.Contains(last.Buttons, forge.FixButton) {
		t.Errorf("buttons %+v", last.Buttons)
	}
}

func TestABaseThatConflicts(t *testing.T) {
	t.Parallel()
	resolve := func(w *world, text string) {
		w.when("merger", func(_ context.Context, c runtime.Call) (any, error) {
			if text == "" {
				return Merged{Summary: "they exclude each other"}, nil
			}
			return Merged{Success: true, Summary: "both"}, os.WriteFile(filepath.Join(c.Dir, "work.txt"), []byte(text), 0o600)
		})
	}
	for name, c := range map[string]struct {
		work     Work
		resolved string
		state    report.State
		file     string // work.txt on the branch, at the end
		merged   bool   // the base is part of it
		owes     string
	}{
		"asked for, and resolved":       {Conflicts, "zero\none\n", report.Succeeded, "zero\none\n", true, ""},
		"asked for, and not resolved":   {Conflicts, "", report.NeedsHuman, "one\n", false, "the branch conflicts with its base in work.txt"},
		"on the way, and resolved":      {Feedback, "zero\none\n", report.Succeeded, "zero\none\ntwo\n", true, ""},
		"on the way, and not resolved":  {Feedback, "", report.SucceededWithDebt, "one\ntwo\n", false, "the branch conflicts with its base in work.txt"},
		"asked for, and markers remain": {Conflicts, "<<<<<<< ours\none\n=======\nzero\n>>>>>>> theirs\n", report.NeedsHuman, "one\n", false, "conflict markers remain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := newReviewed(t)
			hand := w.tip("slipway/12-work")
			w.write("work.txt", "zero\n")
			w.commit()
			resolve(w, c.resolved)
			ask := w.ask
			w.ask = func(r *Request) {
				ask(r)
				if r.Follow.Work = c.work; c.work == Conflicts {
					r.Follow.Threads = nil
				}
			}
			b := w.must(c.state)
			if got := w.git("show", "slipway/12-work:work.txt") + "\n"; got != c.file || !w.holds("slipway/12-work", hand) {
				t.Errorf("work.txt %q, want %q", got, c.file)
			}
			if got := w.holds("slipway/12-work", w.tip("main")); got != c.merged {
				t.Errorf("the base is in it: %t", got)
			}
			if told := "The branch holds its base."; c.work == Conflicts && c.merged && b.Summary != told {
				t.Errorf("the summary: %s", b.Summary)
			}
			told := b.Cause + fmt.Sprint(b.Debt)
			if c.owes != "" && !strings.Contains(told, c.owes) || c.owes == "" && len(b.Debt) > 0 {
				t.Errorf("cause and debt: %s", told)
			}
			if c.state == report.NeedsHuman && (f.body != "" || b.Next == "") {
				t.Errorf("published %q, next %q", f.body, b.Next)
			}
		})
	}
}

// Whatever becomes of a follow-up, its threads are told.
func TestThreadsAreToldOfABadEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world, f *reviewed)
		state  report.State
		told   string
	}{
		"nothing could be coded": {func(w *world, _ *reviewed) {
			w.when("coder", func(context.Context, runtime.Call) (any, error) {
				return nil, &runtime.Error{Class: runtime.Refused, Reason: "no"}
			})
		}, report.Failed, "no issue landed"},
		"closed before it was pushed": {func(_ *world, f *reviewed) { f.shutAt = 2 }, report.Canceled, "its pull request was closed meanwhile"},
		"closed before it began":      {func(_ *world, f *reviewed) { f.shutAt = 1 }, report.NeedsHuman, "it is closed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := newReviewed(t)
			before := w.tip("slipway/12-work")
			c.change(w, f)
			b := w.must(c.state)
			for _, id := range []int64{5, 7} {
				if got := f.answers[id].Body; !strings.Contains(got, "**Not addressed.**") || !strings.Contains(got, c.told) {
					t.Errorf("thread %d is told %q; the cause is %s", id, got, b.Cause)
				}
			}
			if w.tip("slipway/12-work") != before || f.body != "" {
				t.Errorf("the branch moved, the body is %q", f.body)
			}
		})
	}
}

// A pull request that a person opened gets a branch beside it.
func TestAFollowUpBesideAPersonsPullRequest(t *testing.T) {
	t.Parallel()
	w, f := newReviewed(t)
	f.pull.Number, f.pull.Head, f.pull.Ticket = 40, "topic", 0
	w.git("branch", "-m", "slipway/12-work", "topic")
	w.write("work.txt", "zero\n") // the base moved on; nobody asked to merge it
	w.commit()
	w.judges(map[string]bool{"asked": true})
	w.ask = func(r *Request) {
		r.Goal, r.Text, r.Ticket = "", "Two as well.", forge.Ticket{Number: 40}
		r.Follow = &Follow{Pull: f.pull, Work: Asked}
	}
	before := w.tip("topic")
	b := w.must(report.Succeeded)
	if b.Branch != "slipway/review-40" || b.Base != "topic" || w.tip("topic") != before || w.file(b, "work.txt") != "one\ntwo\n" || b.Closes {
		t.Errorf("branch %s onto %s", b.Branch, b.Base)
	}
}

// A journal that ends anywhere is gone on with: the same commit, no call twice.
func TestAFollowUpIsTakenUp(t *testing.T) {
	t.Parallel()
	w, f := newReviewed(t)
	w.write("base.txt", "moved on\n")
	w.commit()
	down := errors.New("the worker died")
	for _, key := range []string{keyPin, keyBring, keyPush, keyAnswer(5), keyComment} {
		w.log.Refuse = func(_ context.Context, e queue.Entry) error {
			if e.Key == key {
				return down
			}
			return nil
		}
		if _, err := w.run(); !errors.Is(err, down) {
			t.Fatalf("it did not die at %s: %v", key, err)
		}
	}
	w.log.Refuse = nil
	b := w.must(report.Succeeded)
	if w.asked("coder") != 1 || w.asked("verifier") != 1 || len(f.answers) != 2 || w.file(b, "work.txt") != "one\ntwo\n" {
		t.Errorf("coder %d, verifier %d, answers %d", w.asked("coder"), w.asked("verifier"), len(f.answers))
	}
}

// A follow-up that brings its workers down is given up, in each thread too.
func TestAFollowUpThatIsGivenUp(t *testing.T) {
	t.Parallel()
	w, f := newReviewed(t)
	request := w.request()
	if err := GiveUp(t.Context(), &w.log, f, request, errors.New("its worker crashed 5 times")); err != nil {
		t.Fatal(err)
	}
	for _, thread := range request.Follow.Threads {
		last := forge.Subject{Ticket: 31, Remark: thread.Remarks[len(thread.Remarks)-1].ID}
		if got := f.answers[thread.ID].Body; !strings.Contains(got, "crashed 5 times") || !slices.Equal(f.reactions[last], []string{"confused"}) {
			t.Errorf("thread %d is told %q, reactions %v", thread.ID, got, f.reactions)
		}
	}
}

// One that is closed right after the push gets no successor.
func TestAFollowUpOpensNoOtherPullRequest(t *testing.T) {
	t.Parallel()
	w, f := newReviewed(t)
	f.shutAt = 3 // when it began, when it was pushed, when it is described
	if b := w.must(report.Succeeded); f.body != "" || b.Pull != nil || w.file(b, "work.txt") != "one\ntwo\n" {
		t.Errorf("described as %q, pull request %+v", f.body, b.Pull)
	}
}

func TestWhatIsSaidInAThreadIsBounded(t *testing.T) {
	thread := forge.Thread{ID: 5, Path: "a.go", Hunk: strings.Repeat("é", 9000) + "+the line"}
	for range 3 {
		thread.Remarks = append(thread.Remarks, forge.Remark{By: forge.Person{Login: "mona"}, Body: strings.Repeat("é", 9000)})
	}
	text := saidIn(thread) + around(thread)
	if len(text) > 3*maxRemark+maxHunk+500 || !strings.HasSuffix(text, "+the line") || strings.Count(text, "[cut here: it is longer]") != 3 || strings.ContainsRune(text, 0xfffd) {
		t.Errorf("%d bytes: %.200s … %s", len(text), text, text[len(text)-60:])
	}
}

// Each file with findings has an issue, and so a commit, of its own.
func TestFindingsArePartedByFile(t *testing.T) {
	at := func(path string) finding.Entry {
		return finding.Entry{Finding: finding.Finding{Path: path, Title: "T " + path}}
	}
	for name, c := range map[string]struct {
		paths []string
		want  string
	}{
		"one":                          {[]string{"a.go"}, "follow-up a.go: finding-1"},
		"two in one file":              {[]string{"a.go", "a.go"}, "follow-up a.go: finding-1 finding-2"},
		"two files, one of them twice": {[]string{"b.go", "a.go", "b.go"}, "follow-up-1 b.go: finding-1 finding-3; follow-up-2 a.go: finding-2"},
		"one of no file":               {[]string{"", "a.go"}, "follow-up-1 : finding-1; follow-up-2 a.go: finding-2"},
		"none":                         {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Follow{Pull: forge.Pull{Number: 7}, Work: Findings}
			for _, p := range c.paths {
				f.Findings = append(f.Findings, at(p))
			}
			var got []string
			for _, is := range f.plan("").Issues {
				files := slices.Compact(slices.Clone(is.FilesToModify))
				line := is.Name + " " + strings.Join(files, " ") + ":"
				for _, criterion := range is.AcceptanceCriteria {
					line += " " + strings.Join(criterion.PRDIDs, " ")
				}
				got = append(got, line)
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
