package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// What a person got wrong on the command line is answered at once with what to
// do, before anything is written or run.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	repo := newRepo(t, checked(green))
	write(t, repo, map[string]string{"inside/file": ""})
	empty, plans := t.TempDir(), t.TempDir()
	write(t, plans, map[string]string{"redis.yml": "redis_url: redis://127.0.0.1:1\n", "slip.json": `{"name":"p","issues":[{"name":"a","codr_ms":1}]}`})
	build := []string{"build", "--goal", "Greet people", "--repo"}
	for name, row := range map[string]struct {
		args []string
		want []string
	}{
		"no goal":                     {[]string{"build", "--repo", repo}, []string{"--goal is required", "say what"}},
		"a blank goal":                {[]string{"build", "--repo", repo, "--goal", "  "}, []string{"--goal is required"}},
		"two goals":                   {[]string{"build", "--repo", repo, "--goal", "x", "--goal-file", "y"}, []string{"--goal and --goal-file", "one of them"}},
		"a goal file that is missing": {[]string{"build", "--repo", repo, "--goal-file", filepath.Join(empty, "no")}, []string{"--goal-file", "no such file"}},
		"no repository":               {[]string{"build", "--goal", "x"}, []string{"--repo is required", "--repo ."}},
		"a directory that is missing": {append(build, filepath.Join(empty, "no")), []string{"--repo", "no such file"}},
		"not a git repository":        {append(build, empty), []string{"--repo", "is not a git repository", "git init"}},
		"inside a repository":         {append(build, filepath.Join(repo, "inside")), []string{"--repo " + repo}},
		"an unknown flag":             {append(build, repo, "--bogus"), []string{"--bogus", "slipway build --help"}},
		"no number":                   {append(build, repo, "--max-parallel", "many"), []string{"--max-parallel", "slipway build --help"}},
		"a number below one":          {append(build, repo, "--max-parallel", "-1"), []string{"--max-parallel", "at least 1"}},
		"an unknown runtime":          {append(build, repo, "--runtime", "magic"), []string{"--runtime", "claude_code, open_code, codex, native, command, replay"}},
		"command without a program":   {append(build, repo, "--runtime", "command"), []string{"--agent-command is required", "node agent.mjs"}},
		"a program that is missing":   {append(build, repo, "--runtime", "command", "--agent-command", "./no-such-agent"), []string{"--agent-command", "./no-such-agent"}},
		"a command line cut off":      {append(build, repo, "--runtime", "command", "--agent-command", "sh 'x"), []string{"--agent-command"}},
		"replay without recordings":   {append(build, repo, "--runtime", "replay"), []string{"--recordings is required"}},
		"an argument too many":        {append(build, repo, "more"), []string{`"more"`}},
		"an unknown verb":             {[]string{"biuld"}, []string{`"biuld"`, "build", "slipway --help"}},
		"status of nothing":           {[]string{"status"}, []string{"wants the id of one build", "slipway list"}},
		"status of an unknown build":  {[]string{"status", "b-00000000"}, []string{"no build b-00000000", "slipway list"}},
		"logs of an unknown build":    {[]string{"logs", "b-00000000"}, []string{"no build b-00000000"}},
		"cancel of an unknown build":  {[]string{"cancel", "b-00000000"}, []string{"no build b-00000000"}},
		"resume of an unknown build":  {[]string{"resume", "b-00000000"}, []string{"no build b-00000000"}},
		"replay of nothing":           {[]string{"replay"}, []string{"wants the id of one build", "slipway list"}},
		"replay of an unknown build":  {[]string{"replay", "b-00000000"}, []string{"no build b-00000000"}},
		"a plan without a goal":       {[]string{"plan", "--repo", repo}, []string{"--goal is required"}},
		"no budget":                   {append(build, repo, "--budget", "lots"), []string{"--budget lots", "US dollars"}},
		"a budget of nothing":         {append(build, repo, "--budget", "0"), []string{"--budget 0", "more than 0"}},
		"an unknown kind of approval": {append(build, repo, "--approval", "always"), []string{"--approval always", "plan or never"}},
		"an unverified goal":          {append(build, repo, "--no-verify"), []string{"--no-verify", "--issue-file"}},
		"a goal and an issue":         {append(build, repo, "--issue-file", filepath.Join(repo, "README.md")), []string{"--issue-file", "leave --goal"}},
		"an issue to plan":            {[]string{"build", "--repo", repo, "--plan-only", "--issue-file", filepath.Join(repo, "README.md")}, []string{"--issue-file and --plan-only"}},
		"an issue file that is none":  {[]string{"build", "--repo", repo, "--issue-file", filepath.Join(repo, "README.md")}, []string{"--issue-file", "README.md", "no JSON"}},
		"no issue file":               {[]string{"build", "--repo", repo, "--issue-file", filepath.Join(empty, "no")}, []string{"--issue-file", "no such file"}},
		"approve of nothing":          {[]string{"approve"}, []string{"wants the id of one build", "slipway list"}},
		"approve of an unknown build": {[]string{"approve", "b-00000000", "0123456"}, []string{"no build b-00000000"}},
		"approve of two plans":        {[]string{"approve", "b-00000000", "0123456", "1234567"}, []string{"approve wants one hash"}},
		"revise without a word":       {[]string{"revise", "b-00000000"}, []string{"revise wants a text", "slipway revise BUILD TEXT"}},
		"answer of blanks":            {[]string{"answer", "b-00000000", " "}, []string{"answer wants a text"}},
		"steer of an unknown build":   {[]string{"steer", "b-00000000", "x"}, []string{"no build b-00000000"}},
		"prune of the future":         {[]string{"prune", "--days", "-1"}, []string{"--days -1", "at least 0"}},
		"prune of a build":            {[]string{"prune", "b-00000000"}, []string{"b-00000000"}},
		"a backup into nothing":       {[]string{"backup"}, []string{"backup wants the name of one file", "slipway backup --help"}},
		"a backup of nothing":         {[]string{"backup", filepath.Join(empty, "b.tar.gz")}, []string{"there is no store in", "--state-dir"}},
		"a backup of Redis":           {[]string{"backup", filepath.Join(empty, "b.tar.gz"), "--config", filepath.Join(plans, "redis.yml")}, []string{"the store is in Redis", "docs/deploy.md"}},
		"a restore into Redis":        {[]string{"restore", filepath.Join(empty, "b.tar.gz"), "--config", filepath.Join(plans, "redis.yml")}, []string{"the store is in Redis", "docs/deploy.md"}},
		"a simulation of nothing":     {[]string{"simulate"}, []string{"one plan file, or --random N"}},
		"two plans":                   {[]string{"simulate", "p.json", "--random", "4"}, []string{"--random", "not both"}},
		"a plan that is missing":      {[]string{"simulate", filepath.Join(empty, "no.json")}, []string{"no.json", "no such file"}},
		"a slip in a plan":            {[]string{"simulate", filepath.Join(plans, "slip.json")}, []string{"slip.json", "issues[0]", "codr_ms"}},
		"no lanes":                    {[]string{"simulate", "--random", "4", "--max-parallel-issues", "0"}, []string{"--max-parallel-issues", "1 to 64"}},
		"an unknown barrier":          {[]string{"simulate", "--random", "4", "--barrier", "wave"}, []string{"--barrier", "none or level"}},
		"a configuration that is missing": {
			append(build, repo, "--config", filepath.Join(empty, "no.yml")), []string{"no.yml"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal(t)
			end := term.slipway(row.args...)
			if end.code != 2 || end.out != "" {
				t.Errorf("exit %d, want 2; it printed %q", end.code, end.out)
			}
			for _, want := range row.want {
				if !strings.Contains(end.err, want) {
					t.Errorf("the answer does not say %q: %s", want, end.err)
				}
			}
			if strings.Contains(end.err, "goroutine ") {
				t.Errorf("a stack trace: %s", end.err)
			}
		})
	}
}

func TestServeWithoutCredentials(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		env  []string
		want []string
	}{
		"with nothing but the secret": {[]string{"SLIPWAY_GITHUB_WEBHOOK_SECRETS=s3cret"}, []string{
			"github.app_id", "SLIPWAY_GITHUB_APP_ID", "github.private_key_file", "SLIPWAY_GITHUB_PRIVATE_KEY_FILE",
		}},
		"with nothing but the id": {[]string{"SLIPWAY_GITHUB_APP_ID=7"}, []string{
			"github.private_key_file", "github.webhook_secrets", "SLIPWAY_GITHUB_WEBHOOK_SECRETS",
		}},
		"with all but the secret": {
			[]string{"SLIPWAY_GITHUB_APP_ID=7", "SLIPWAY_GITHUB_PRIVATE_KEY_FILE=/key.pem"}, []string{"github.webhook_secrets"},
		},
		"with an empty secret": {
			[]string{"SLIPWAY_GITHUB_APP_ID=7", "SLIPWAY_GITHUB_PRIVATE_KEY_FILE=/key.pem", "SLIPWAY_GITHUB_WEBHOOK_SECRETS="},
			[]string{"webhook_secrets"},
		},
		"with an empty secret beside a good one": {
			[]string{"SLIPWAY_GITHUB_APP_ID=7", "SLIPWAY_GITHUB_PRIVATE_KEY_FILE=/key.pem", "SLIPWAY_GITHUB_WEBHOOK_SECRETS=s3cret,"},
			[]string{"WEBHOOK_SECRETS", "empty"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := newTerminal(t, row.env...).slipway("serve")
			if end.code != 2 {
				t.Errorf("exit %d, want 2", end.code)
			}
			for _, want := range row.want {
				if !strings.Contains(end.err, want) {
					t.Errorf("the answer does not say %q: %s", want, end.err)
				}
			}
			if strings.Contains(end.err, "s3cret") {
				t.Errorf("a secret is shown: %s", end.err)
			}
		})
	}
}

func TestHelpOfEveryVerb(t *testing.T) {
	t.Parallel()
	term := newTerminal(t)
	verbs := 0
	for _, cmd := range newRoot().Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		verbs++
		for example := range strings.Lines(cmd.Example) {
			if !strings.Contains(example, "slipway "+cmd.Name()) {
				t.Errorf("%s: an example of something else: %s", cmd.Name(), example)
			}
		}
		end := term.slipway(cmd.Name(), "--help")
		if end.code != 0 || cmd.Example == "" || !strings.Contains(end.out, "Examples:\n"+cmd.Example) {
			t.Errorf("%s --help: exit %d, without its example:\n%s", cmd.Name(), end.code, end.out)
		}
	}
	if verbs < 10 {
		t.Errorf("%d verbs", verbs)
	}
	if end := term.slipway("version"); end.code != 0 || !strings.HasPrefix(end.out, "slipway ") {
		t.Errorf("version: %d %q", end.code, end.out)
	}
}

func TestPlanVerb(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	was := lookAt(t, repo)
	_, flags := company.but(cast{
		"sprint_planner.json": planned(`{"name":"second","depends_on":["first"]}`, `{"name":"first"}`),
	}).hire(t)
	typed := append([]string{"plan", "--repo", repo, "--goal", "Greet people"}, flags...)
	text := term.slipway(typed...)
	first, second := strings.Index(text.out, "01  first"), strings.Index(text.out, "02  second")
	if text.code != 0 || first < 0 || second < first || !strings.Contains(text.out, "after first") {
		t.Errorf("plan: exit %d\n%s%s", text.code, text.out, text.err)
	}
	_, path, _ := strings.Cut(text.out, "plan  ")
	if files, err := filepath.Glob(filepath.Join(strings.TrimSpace(path), "issues", "*.md")); err != nil || len(files) != 2 {
		t.Errorf("kept in %q: %v, %v", path, files, err)
	}
	var made plan.Result
	end := term.slipway(append(typed, "--json")...)
	if err := json.Unmarshal([]byte(end.out), &made); err != nil || end.code != 0 {
		t.Fatalf("plan --json: exit %d, %v\n%s", end.code, err, end.err)
	}
	if len(made.Issues) != 2 || made.Issues[1].Name != "second" || made.PRD.Title != "Greet people" {
		t.Errorf("plan: %+v", made)
	}
	was.untouched(t)
}

// A plan that cannot be made is no plan to try for ever.
func TestPlanThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		cast  cast
		flags []string
		code  int
		want  string
	}{
		"agents that fail":           {cast{"pm.sh": "echo ill >&2; exit 1\n"}, nil, 1, "failed: Nothing was built: plan/pm: the agent's program ended with exit code 1: ill"},
		"a branch that is not there": {nil, []string{"--base", "nowhere"}, 3, "needs_human: Nothing was built: the repository could not be prepared: fetch nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term, repo := newTerminal(t), newRepo(t, checked(green))
			_, flags := company.but(row.cast).hire(t)
			end := term.slipway(append(append([]string{"plan", "--repo", repo, "--goal", "Greet people"}, flags...), row.flags...)...)
			if end.code != row.code || end.out != "" || !strings.Contains(end.err, row.want) {
				t.Errorf("exit %d, want %d with %q\n%s%s", end.code, row.code, row.want, end.out, end.err)
			}
			if listed := term.slipway("list"); strings.Contains(listed.out, "running") {
				t.Errorf("it is listed as running: %s", listed.out)
			}
		})
	}
}

func TestVerbsOnAFinishedBuild(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	_, flags := company.hire(t)
	end := term.slipway(append([]string{"build", "--repo", repo, "--goal", "Greet people\nby their names"}, flags...)...)
	if end.code != 0 || !strings.Contains(end.out, "succeeded: ") || !strings.Contains(end.out, "add-greet") || !strings.Contains(end.out, "report.md") {
		t.Fatalf("build: exit %d\n%s%s", end.code, end.out, end.err)
	}
	if strings.Contains(end.out, "\x1b") {
		t.Errorf("control characters where no terminal is:\n%q", end.out)
	}
	listed := lines[struct {
		Build, State, Title string
		Cost                float64 `json:"cost_usd"`
	}](t, term.slipway("list", "--json"))
	if len(listed) != 1 || listed[0].State != "succeeded" || listed[0].Title != "Greet people" || listed[0].Cost != 0.017 {
		t.Fatalf("list --json: %+v", listed)
	}
	id := listed[0].Build
	for name, row := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"list":                  {[]string{"list"}, 0, []string{id, "succeeded", "Greet people", "$0.02"}},
		"status":                {[]string{"status", id}, 0, []string{"Succeeded", "slipway/" + id}},
		"logs":                  {[]string{"logs", id}, 0, []string{"execute   done", "add-greet", "completed"}},
		"logs that follow":      {[]string{"logs", id, "--follow"}, 0, []string{"publish   done"}},
		"the transcript":        {[]string{"logs", id, "issue-01/round-1/iter-1/coder"}, 0, []string{"usage"}},
		"no such transcript":    {[]string{"logs", id, "issue-09/coder"}, 2, []string{"no transcript of issue-09/coder"}},
		"a way out of them":     {[]string{"logs", id, "../../../store/x"}, 2, []string{"no transcript of"}},
		"cancel":                {[]string{"cancel", id}, 2, []string{"has ended already"}},
		"resume":                {[]string{"resume", id}, 2, []string{"has ended", "nothing to resume", "slipway status " + id}},
		"approve":               {[]string{"approve", id, "0123456"}, 2, []string{"has ended already", "slipway status " + id}},
		"revise":                {[]string{"revise", id, "smaller"}, 2, []string{"has ended already"}},
		"reject":                {[]string{"reject", id}, 2, []string{"has ended already"}},
		"answer":                {[]string{"answer", id, "yes"}, 2, []string{"has ended already"}},
		"steer":                 {[]string{"steer", id, "mind", "the", "gap"}, 2, []string{"has ended already"}},
		"an argument too many":  {[]string{"status", id, id}, 2, []string{"one build"}},
		"a flag it has not got": {[]string{"status", id, "--follow"}, 2, []string{"--follow", "slipway status --help"}},
	} {
		t.Run(name, func(t *testing.T) {
			end := term.slipway(row.args...)
			if end.code != row.code {
				t.Errorf("exit %d, want %d: %s", end.code, row.code, end.err)
			}
			for _, want := range row.want {
				if !strings.Contains(end.out+end.err, want) {
					t.Errorf("it does not say %q:\n%s%s", want, end.out, end.err)
				}
			}
		})
	}
	t.Run("status --json", func(t *testing.T) {
		all := lines[report.Build](t, term.slipway("status", id, "--json"))
		if len(all) != 1 || all[0].State != report.Succeeded || !all[0].Success || all[0].CostMicros != 1000*companyCalls || len(all[0].Issues) != 1 {
			t.Errorf("status --json: %+v", all)
		}
	})
	t.Run("logs --json", func(t *testing.T) {
		all := lines[line](t, term.slipway("logs", id, "--json"))
		if len(all) < 20 || all[0].Key != "begin" || all[len(all)-1].Key != "done" {
			t.Errorf("logs --json: %+v", all)
		}
	})
}

// lines reads the JSON lines of a verb that went well.
func lines[T any](t *testing.T, end typed) (all []T) {
	t.Helper()
	if end.code != 0 {
		t.Fatalf("exit %d: %s", end.code, end.err)
	}
	for text := range strings.Lines(end.out) {
		var one T
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		all = append(all, one)
	}
	return all
}
