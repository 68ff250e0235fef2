package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
)

var updateReviews = flag.Bool("update-reviews", false, "write the golden flows of reviews anew")

// change opens a pull request of mira's branch that adds greet.sh.
func (s *server) change(branch string, draft bool) int {
	s.Helper()
	s.push(branch, "# greets\necho hello $name\n")
	made, err := s.sim.OpenPull(s.Context(), githubsim.PullSpec{
		Repo: fullName, Title: "Greet by name", Body: "Says hello.", Head: branch, Base: "main", Draft: draft, By: "mira",
	})
	must(s.T, err)
	return made.Number
}

// push puts greet.sh on a branch.
func (s *server) push(branch, text string) {
	s.Helper()
	_, err := s.sim.Commit(s.Context(), githubsim.CommitSpec{
		Repo: fullName, Branch: branch, By: "mira", Message: "Greet", Files: map[string]string{"greet.sh": text},
	})
	must(s.T, err)
}

// A reviewed is what people see of the reviews of a pull request.
type reviewed struct {
	comments []string // ours, on the thread
	reviews  []*github.PullRequestReview
	remarks  []*github.PullRequestComment
	checks   []*github.CheckRun
	labels   int
}

func (s *server) reviewed(c *github.Client, number int) (r reviewed) {
	s.Helper()
	ctx := s.Context()
	comments, _, err := c.Issues.ListComments(ctx, "harbour", "greeter", number, nil)
	must(s.T, err)
	for _, m := range comments {
		if m.GetUser().GetLogin() == "slipway[bot]" {
			r.comments = append(r.comments, m.GetBody())
		}
	}
	r.reviews, _, err = c.PullRequests.ListReviews(ctx, "harbour", "greeter", number, nil)
	must(s.T, err)
	r.remarks, _, err = c.PullRequests.ListComments(ctx, "harbour", "greeter", number, nil)
	must(s.T, err)
	pull, _, err := c.PullRequests.Get(ctx, "harbour", "greeter", number)
	must(s.T, err)
	r.labels = len(pull.Labels)
	name := pipeline.ReviewCheckName
	checks, _, err := c.Checks.ListCheckRunsForRef(ctx, "harbour", "greeter", pull.GetHead().GetSHA(), &github.ListCheckRunsOptions{CheckName: &name, Filter: github.String("all")})
	must(s.T, err)
	r.checks = checks.CheckRuns
	return r
}

// varying is what differs between two runs of one flow.
var varying = []struct {
	shape *regexp.Regexp
	by    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), "SHA"},
	{regexp.MustCompile("`[0-9a-f]{10}`"), "`SHORT`"},
	{regexp.MustCompile(`r-[0-9a-f]{12}`), "RUN"},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+`), "https://github.example"},
	{regexp.MustCompile(`app=\d+`), "app=APP"},
	{regexp.MustCompile(`pullrequestreview-\d+`), "pullrequestreview-ID"},
	{regexp.MustCompile(`\b\d+(\.\d+)?s( \||$|\n)`), "TIME$2"},
	{regexp.MustCompile(`· \d+m \d+s`), "· TIME"},
}

// print is everything that people see, as one text.
func (r reviewed) print() string {
	var b strings.Builder
	for _, text := range r.comments {
		fmt.Fprintf(&b, "==== comment\n%s\n", text)
	}
	for _, v := range r.reviews {
		fmt.Fprintf(&b, "==== review %s\n%s\n", v.GetState(), v.GetBody())
	}
	for _, m := range r.remarks {
		fmt.Fprintf(&b, "==== remark %s:%d %s\n%s\n", m.GetPath(), m.GetLine(), m.GetSide(), m.GetBody())
	}
	for _, c := range r.checks {
		fmt.Fprintf(&b, "==== check %s %s %s\n%s\n%s\n%s\nannotations: %d\n", c.GetName(), c.GetStatus(), c.GetConclusion(),
			c.GetOutput().GetTitle(), c.GetOutput().GetSummary(), c.GetOutput().GetText(), c.GetOutput().GetAnnotationsCount())
	}
	text := b.String()
	for _, v := range varying {
		text = v.shape.ReplaceAllString(text, v.by)
	}
	return text
}

// golden compares what people see with testdata/golden/reviews/<name>.txt.
func (r reviewed) golden(t *testing.T, name string) {
	t.Helper()
	path, got := filepath.Join("..", "..", "testdata", "golden", "reviews", name+".txt"), r.print()
	if *updateReviews {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s differs; -update-reviews writes it anew:\n%s", path, got)
	}
}

// TestReviewOnGitHub goes from signed deliveries to what people see: by label, by
// comment, again without a change, after a fix, and by itself.
func TestReviewOnGitHub(t *testing.T) {
	t.Parallel()
	s := newServer(t, critics)
	s.ticket = s.change("feature", false)
	c := s.hub()
	_, err := s.sim.Label(t.Context(), githubsim.Labelling{Repo: fullName, Number: s.ticket, Label: "slipway:review", By: "mira"})
	must(t, err)
	s.rest()
	first := s.reviewed(c, s.ticket)
	if len(first.comments) != 1 || len(first.reviews) != 1 || len(first.remarks) != 1 || len(first.checks) != 1 || first.labels != 0 {
		t.Fatalf("%d comments, %d reviews, %d remarks, %d checks, %d labels:\n%s", len(first.comments), len(first.reviews), len(first.remarks), len(first.checks), first.labels, first.print())
	}
	first.golden(t, "findings")

	s.says("mira", "/review")
	s.rest()
	second := s.reviewed(c, s.ticket)
	if len(second.comments) != 1 || len(second.reviews) != 1 || len(second.remarks) != 1 || len(second.checks) != 2 {
		t.Errorf("the same diff again: %s", second.print())
	}

	s.push("feature", "# greets\necho \"hello ${name:?}\"\n")
	s.says("mira", "/review")
	s.rest()
	third := s.reviewed(c, s.ticket)
	if len(third.comments) != 1 || len(third.reviews) != 1 || len(third.checks) != 1 {
		t.Errorf("after a fix: %s", third.print())
	}
	third.golden(t, "fixed")

	s.says("rita", "/review")
	s.rest()
	if bodies := s.reviewed(c, s.ticket).comments; len(bodies) != 2 || !strings.Contains(bodies[1], "needs the role **triage**") {
		t.Errorf("a reader: %q", bodies)
	}
}
