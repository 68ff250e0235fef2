package githubsim

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// actionsApp is the App whose check runs are jobs: they have a log, and can be
// run again by whoever may write actions.
const actionsApp = "github-actions"

// A CISpec scripts the checks that another App runs on what is pushed. Of
// several scripts of one App that match a push, the oldest acts. A commit that
// an App has checked is not checked again by another push.
type CISpec struct {
	Repo   string        `json:"repo"`             // owner/name
	App    string        `json:"app,omitempty"`    // slug, created if need be; empty means github-actions
	Branch string        `json:"branch,omitempty"` // pattern of path.Match; empty: any
	Push   int           `json:"push,omitempty"`   // only the n-th push to such a branch, from 1; 0: every one
	File   string        `json:"file,omitempty"`   // only a commit whose File …
	Holds  string        `json:"holds,omitempty"`  // … holds this text
	SHA    string        `json:"sha,omitempty"`    // not on a push: on this commit, from now on
	Runs   []CIRun       `json:"runs,omitempty"`   // none: the suite stays empty, as that of an App that has nothing to check
	Delay  time.Duration `json:"delay,omitempty"`  // from the push until the runs appear, nanoseconds
	Takes  time.Duration `json:"takes,omitempty"`  // from then until they end
}

// A CIRun is one check run of a script, or a commit status.
type CIRun struct {
	Kind        CIKind         `json:"kind,omitempty"` // empty means a check run
	Name        string         `json:"name"`
	Conclusions []string       `json:"conclusions,omitempty"` // of the first attempt and of each re-run, the last for the rest; none: success; "": it never ends
	Title       string         `json:"title,omitempty"`       // what follows belongs to attempts that do not succeed
	Summary     string         `json:"summary,omitempty"`
	Text        string         `json:"text,omitempty"`
	Log         string         `json:"log,omitempty"` // of a job of github-actions
	Annotations []CIAnnotation `json:"annotations,omitempty"`
}

// CIKind is how a CI reports.
type CIKind string

// The kinds. The conclusions of a status are GitHub's states of one: success,
// failure, error.
const (
	CICheck  CIKind = "check"
	CIStatus CIKind = "status"
)

// A CIAnnotation is a failure at a line.
type CIAnnotation struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

type ciScript struct {
	ID     int64  `json:"id"`
	Spec   CISpec `json:"spec"`
	Pushes int    `json:"pushes"` // to a matching branch
}

// A ciStep is what a script does next: all its runs begin, one begins again, or
// one ends.
type ciStep struct {
	At      time.Time `json:"at"`
	Script  int64     `json:"script"`
	SHA     string    `json:"sha"`
	Entry   int       `json:"entry"` // of Runs; -1: all
	Attempt int       `json:"attempt"`
	Ends    int64     `json:"ends"` // the check or status that ends; 0: it begins
}

type commitStatus struct {
	ID          int64     `json:"id"`
	SHA         string    `json:"sha"`
	Context     string    `json:"context"`
	State       string    `json:"state"`
	Description string    `json:"description"`
	Created     time.Time `json:"created"`
	Updated     time.Time `json:"updated"`
}

// ScriptCI adds a script.
func (s *Server) ScriptCI(ctx context.Context, spec CISpec) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		r, err := st.named(spec.Repo)
		if err != nil {
			return err
		}
		if _, err := path.Match(spec.Branch, ""); err != nil {
			return fmt.Errorf("script a CI: branch %q: %w", spec.Branch, err)
		}
		for _, run := range spec.Runs {
			if run.Name == "" || !slices.Contains([]CIKind{"", CICheck, CIStatus}, run.Kind) {
				return fmt.Errorf("script a CI: a run needs a name and a kind that there is: %q, %q", run.Name, run.Kind)
			}
		}
		spec.App = orText(spec.App, actionsApp)
		s.ensureChecker(spec.App)
		script := &ciScript{ID: st.next(), Spec: spec}
		r.Scripts = append(r.Scripts, script)
		if spec.SHA == "" {
			return nil
		}
		if s.resolve(ctx, r, spec.SHA) != spec.SHA {
			return fmt.Errorf("script a CI: %s has no commit %q", spec.Repo, spec.SHA)
		}
		return s.begin(ctx, r, script, spec.SHA)
	})
}

// ensureChecker creates an App that nobody signs in as.
func (s *Server) ensureChecker(slug string) {
	if find(s.state.Apps, func(a *app) bool { return a.Slug == slug }) != nil {
		return
	}
	a := &app{
		ID: s.state.next(), Slug: slug, Name: slug, Owner: "github", Created: s.now(),
		Permissions: map[string]string{"metadata": "read", "checks": "write"},
	}
	s.state.ensureUser(a.Owner, "")
	s.state.ensureUser(a.bot(), "Bot")
	s.state.Apps = append(s.state.Apps, a)
}

// checkPush has the scripts look at a push. The caller holds mu and commits.
func (s *Server) checkPush(ctx context.Context, r *repo, branch, sha string) error {
	acted := map[string]bool{} // by App
	for _, c := range r.Scripts {
		if matches, _ := path.Match(c.Spec.Branch, branch); c.Spec.SHA != "" || !matches && c.Spec.Branch != "" {
			continue
		}
		c.Pushes++
		if acted[c.Spec.App] || c.Spec.Push != 0 && c.Spec.Push != c.Pushes || !s.holds(ctx, r, sha, c.Spec) {
			continue
		}
		acted[c.Spec.App] = true
		if err := s.begin(ctx, r, c, sha); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) holds(ctx context.Context, r *repo, sha string, spec CISpec) bool {
	if spec.File == "" {
		return true
	}
	text, err := s.git(ctx, r, "cat-file", "blob", sha+":"+spec.File)
	return err == nil && strings.Contains(text, spec.Holds)
}

// begin schedules the runs of a script on a commit, unless it has begun there.
func (s *Server) begin(ctx context.Context, r *repo, c *ciScript, sha string) error {
	a := s.checker(c)
	if find(r.Suites, func(s *suite) bool { return s.App == a.ID && s.HeadSHA == sha }) != nil {
		return nil
	}
	r.Suites = append(r.Suites, &suite{ID: s.state.next(), App: a.ID, HeadSHA: sha, Created: s.now()})
	r.Steps = append(r.Steps, &ciStep{At: s.clock().Add(c.Spec.Delay), Script: c.ID, SHA: sha, Entry: -1})
	return s.advance(ctx, r)
}

func (s *Server) checker(c *ciScript) *app {
	return find(s.state.Apps, func(a *app) bool { return a.Slug == c.Spec.App })
}

// catchSteps takes the steps that are due.
func (s *Server) catchSteps(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.catchStepsLocked(ctx)
}

// catchStepsLocked is catchSteps for whoever holds mu: before a request is
// answered, whether Deliver runs or not.
func (s *Server) catchStepsLocked(ctx context.Context) error {
	due := false
	var err error
	for _, r := range s.state.Repos {
		due = due || slices.ContainsFunc(r.Steps, s.due)
		err = errors.Join(err, s.advance(ctx, r))
	}
	if due {
		err = errors.Join(err, s.commit())
	}
	return err
}

func (s *Server) due(step *ciStep) bool { return !step.At.After(s.clock()) }

// advance takes the steps that are due, oldest first.
func (s *Server) advance(ctx context.Context, r *repo) error {
	for {
		at := -1
		for i, step := range r.Steps {
			if s.due(step) && (at < 0 || step.At.Before(r.Steps[at].At)) {
				at = i
			}
		}
		if at < 0 {
			return nil
		}
		step := r.Steps[at]
		r.Steps = slices.Delete(r.Steps, at, at+1)
		if err := s.step(ctx, r, step); err != nil {
			return err
		}
	}
}

func (s *Server) step(ctx context.Context, r *repo, step *ciStep) error {
	c := find(r.Scripts, func(c *ciScript) bool { return c.ID == step.Script })
	if step.Ends != 0 {
		return s.endRun(ctx, r, c, step)
	}
	for i := range c.Spec.Runs {
		if step.Entry < 0 || step.Entry == i {
			again := *step
			again.Entry = i
			s.beginRun(r, c, again)
		}
	}
	return nil
}

// beginRun creates a check run or status and schedules its end.
func (s *Server) beginRun(r *repo, c *ciScript, step ciStep) {
	run, a := c.Spec.Runs[step.Entry], s.checker(c)
	step.At, step.Ends = step.At.Add(c.Spec.Takes), s.state.next()
	if run.Kind == CIStatus {
		r.Statuses = append(r.Statuses, &commitStatus{
			ID: step.Ends, SHA: step.SHA, Context: run.Name, State: "pending", Created: s.now(), Updated: s.now(),
		})
	} else {
		u := find(r.Suites, func(u *suite) bool { return u.App == a.ID && u.HeadSHA == step.SHA })
		u.Again = false
		k := &check{
			ID: step.Ends, App: a.ID, Suite: u.ID, Name: run.Name, HeadSHA: step.SHA, Status: "in_progress", Started: s.now(),
			Script: c.ID, Entry: step.Entry, Attempt: step.Attempt,
		}
		r.Checks = append(r.Checks, k)
		s.emitCheck(r, k, "created", a.bot(), nil)
	}
	if run.concludes(step.Attempt) != "" {
		r.Steps = append(r.Steps, &step)
	}
}

// concludes is how an attempt ends; empty: it does not.
func (run CIRun) concludes(attempt int) string {
	if len(run.Conclusions) == 0 {
		return "success"
	}
	return run.Conclusions[min(attempt, len(run.Conclusions)-1)]
}

// endRun concludes a run, and with the last of them the suite.
func (s *Server) endRun(ctx context.Context, r *repo, c *ciScript, step *ciStep) error {
	run, a := c.Spec.Runs[step.Entry], s.checker(c)
	conclusion := run.concludes(step.Attempt)
	if run.Kind == CIStatus {
		status := find(r.Statuses, func(x *commitStatus) bool { return x.ID == step.Ends })
		status.State, status.Description, status.Updated = conclusion, run.Title, s.now()
		return nil
	}
	k := find(r.Checks, func(k *check) bool { return k.ID == step.Ends })
	now := s.now()
	k.Status, k.Conclusion, k.Completed, k.Log = "completed", conclusion, &now, run.Log
	if conclusion != "success" {
		k.Title, k.Summary, k.Text = run.Title, run.Summary, run.Text
		for _, n := range run.Annotations {
			k.Annotations = append(k.Annotations, annotation{Path: n.Path, StartLine: n.Line, EndLine: n.Line, Level: "failure", Message: n.Message})
		}
	}
	s.emitCheck(r, k, "completed", a.bot(), nil)
	u := r.suite(k.Suite)
	if status, _ := suiteOutcome(r, u); status != "completed" {
		return nil
	}
	return s.emitSuite(ctx, r, u, "completed", a.bot())
}

// repeat runs a scripted check again: as a new check run of the same suite, as
// the jobs of github-actions do.
func (s *Server) repeat(ctx context.Context, r *repo, k *check) error {
	r.Steps = append(r.Steps, &ciStep{At: s.clock(), Script: k.Script, SHA: k.HeadSHA, Entry: k.Entry, Attempt: k.Attempt + 1})
	return s.advance(ctx, r)
}

// alarm fires when the next step of a script is due; nil if there is none.
func (s *Server) alarm() (fire <-chan time.Time, stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next *ciStep
	for _, r := range s.state.Repos {
		for _, step := range r.Steps {
			if next == nil || step.At.Before(next.At) {
				next = step
			}
		}
	}
	if next == nil {
		return nil, func() {}
	}
	// With a clock of its own, a test moves time; a look now and then is enough.
	timer := time.NewTimer(max(next.At.Sub(s.clock()), time.Millisecond))
	return timer.C, func() { timer.Stop() }
}

// A Requirement names checks that have to pass before a branch takes a merge.
type Requirement struct {
	Repo   string   `json:"repo"`
	Branch string   `json:"branch"`
	By     RuleKind `json:"by,omitempty"` // empty means a ruleset
	Names  []string `json:"names"`
	App    int64    `json:"app,omitempty"` // only of this App; 0: of any
}

// A Rule is another rule of a ruleset, which the stand-in tells of and does not
// enforce.
type Rule struct {
	Repo     string `json:"repo"`
	Branch   string `json:"branch"` // pattern of path.Match
	Type     string `json:"type"`   // GitHub's, such as required_signatures
	Operator string `json:"operator,omitempty"`
	Pattern  string `json:"pattern,omitempty"` // of a rule that has one
}

// AddRule adds a rule to a repository.
func (s *Server) AddRule(_ context.Context, rule Rule) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		r, err := st.named(rule.Repo)
		if err != nil {
			return err
		}
		r.Rules = append(r.Rules, rule)
		return nil
	})
}

// RuleKind is by what a branch is protected.
type RuleKind string

// The kinds of rule. A ruleset also has a rule that is newer than most clients.
const (
	ByRuleset    RuleKind = "ruleset"
	ByProtection RuleKind = "protection"
)

// Require adds a requirement.
func (s *Server) Require(_ context.Context, q Requirement) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		r, err := st.named(q.Repo)
		if err != nil {
			return err
		}
		if q.By = RuleKind(orText(string(q.By), string(ByRuleset))); q.By != ByRuleset && q.By != ByProtection {
			return fmt.Errorf("require checks: %q is no kind of rule", q.By)
		}
		r.Required = append(r.Required, q)
		return nil
	})
}
