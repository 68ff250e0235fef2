package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// boundDocument is how long the state document of a thousand issues may take at
// a landing, written to disk.
const boundDocument = 50 * time.Millisecond

// telling makes entries of a journal.
type telling struct {
	t    testing.TB
	at   time.Time
	fold *Fold
}

func (w *telling) add(key string, outcome any) {
	w.t.Helper()
	text, err := json.Marshal(outcome)
	if err != nil {
		w.t.Fatal(err)
	}
	w.at = w.at.Add(time.Second)
	w.fold.Add(step.Entry{Key: key, Outcome: text, At: w.at})
	if w.fold.err != nil {
		w.t.Fatal(w.fold.err)
	}
}

// land adds the entries of one issue from its start to its landing.
func (w *telling) land(n int, is graph.Issue) {
	commit := fmt.Sprintf("%040d", n)
	w.add(keyStart(is.Key()), started{Base: commit})
	w.add(keyKept(is.Key()), kept{Name: is.Name, Ref: "refs/slipway/b-1/" + is.Slug(), Result: coding.Result{
		Outcome: report.Completed, Commit: commit, Changed: true, Iterations: 1, Summary: strings.Repeat("Done. ", 30),
		Interfaces: []string{"thing.New() Thing"}, Files: []string{"thing.go"},
	}})
	land := keyLand(n)
	w.add(land, landing{Issues: []string{is.Name}, Base: commit})
	w.add(keyAdvanced(land), advanced{Head: commit, Landed: []landed{{Name: is.Name, Merge: commit}}})
}

func manyIssues(t testing.TB, n int) (*telling, []graph.Issue) {
	var issues []graph.Issue
	for i := range n {
		is := issue(fmt.Sprintf("part-%04d", i), []string{fmt.Sprintf("part-%d.go", i)})
		is.Description = strings.Repeat("What to do. ", 20)
		if i >= 10 {
			is.DependsOn = []string{fmt.Sprintf("part-%04d", i-10)}
		}
		issues = append(issues, is)
	}
	made, err := plan.Given(plan.Result{PRD: plan.PRD{Title: "The whole"}, Issues: issues})
	if err != nil {
		t.Fatal(err)
	}
	w := &telling{t: t, at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), fold: NewFold()}
	w.add(keyBegin, begun{Build: "b-1", Repo: "o/r", Title: "The whole"})
	w.add(keyPin, pinned{Base: "main", BaseSHA: strings.Repeat("a", 40)})
	w.add(keyPlan, made)
	return w, made.Issues
}

// BenchmarkStateDocument is what the state of a thousand issues costs at each of
// their landings.
func BenchmarkStateDocument(b *testing.B) {
	dir := b.TempDir()
	build := &build{Engine: &Engine{State: dir}, Job: Job{Request: Request{Build: "b-1"}}}
	written, took := 0, time.Duration(0)
	for b.Loop() {
		w, issues := manyIssues(b, 1000)
		build.fold = w.fold
		for n, is := range issues {
			w.land(n+1, is)
			begin := time.Now()
			if err := build.checkpoint(); err != nil {
				b.Fatal(err)
			}
			written, took = written+1, took+time.Since(begin)
		}
	}
	mean := took / time.Duration(written)
	b.ReportMetric(float64(mean.Microseconds())/1000, "document-ms")
	b.ReportMetric(float64(mean)/float64(boundDocument), "document/bound")
}

func TestTheStateDocumentTellsWhatTheReportTells(t *testing.T) {
	w, issues := manyIssues(t, 12)
	check := func() {
		t.Helper()
		text, err := w.fold.document()
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			V         int
			Issues    []issueDocument
			Completed []string
			Pending   []string
			Git       gitDocument
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		account := w.fold.Report(w.at)
		landed := 0
		for i, is := range account.Issues {
			if d := doc.Issues[i]; d.Spec.Name != is.Name || d.Status != is.Outcome || d.Merge != is.Merge {
				t.Errorf("the document says %+v, the report %+v", d, is)
			}
			if is.Merge != "" {
				landed++
			}
		}
		if doc.V != documentVersion || len(doc.Completed) != landed || doc.Git.Head != w.fold.integrated() {
			t.Errorf("document %+v", doc)
		}
	}
	check()
	for n, is := range issues {
		w.land(n+1, is)
		check()
	}
}

// Landings that come close to each other share a document; none is left out of it.
func TestTheStateDocumentTellsOfEveryLandingInTheEnd(t *testing.T) {
	w, issues := manyIssues(t, 5)
	b := &build{
		Engine: &Engine{State: t.TempDir()}, Job: Job{Request: Request{Build: "b-1"}},
		fold: w.fold, site: &site{}, log: slog.New(slog.DiscardHandler),
	}
	ctx, done := context.WithCancel(t.Context())
	b.paper.next = time.Now().Add(time.Hour) // it was written a moment ago
	for n, is := range issues {
		w.land(n+1, is)
		b.landed(ctx)
	}
	file := filepath.Join(b.State, "builds", "b-1", "state.json")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is written for a landing before its time: %v", err)
	}
	done()
	b.site.settling.Wait()
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `"completed": ["part-0000","part-0001","part-0002","part-0003","part-0004"]`) {
		t.Errorf("%v\n%s", err, text)
	}
}
