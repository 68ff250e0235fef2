package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A cast is a build's agents as one program for runtime command. ROLE.json is
// what the role answers. ROLE.sh runs before it in the agent's shell: it may
// work in the worktree, set $answer, or exit; $step, $request and $here (the
// program's directory) are set.
type cast map[string]string

// play is the program. The role and the step come first in the request, before
// any text that could hold their names.
const play = `here=${0%/*}
request=$(cat)
field() { rest=${request#*\"$1\":\"}; printf '%s' "${rest%%\"*}"; }
role=$(field role) step=$(field step)
[ -f "$here/$role.json" ] && answer=$(cat "$here/$role.json")
[ -f "$here/$role.sh" ] && . "$here/$role.sh"
[ -n "$answer" ] || { echo "nobody plays $role" >&2; exit 1; }
printf '{"type":"usage","input_tokens":100,"output_tokens":10,"cost_usd":0.001}\n'
printf '{"type":"result","output":%s}\n' "$answer"
`

// company plays a build of one issue, add-greet, that goes well.
var company = cast{
	"pm.json": `{"title":"Greet people","validated_description":"Greet people by name.","size":"trivial",
		"acceptance_criteria":[{"id":"ac-1","text":"greet.sh greets","must_have":true}]}`,
	"sprint_planner.json": plan1,
	"issue_writer.json":   `{"issue_name":"any","success":true,"spec":"Write it."}`,
	"coder.json":          `{"files_changed":["greet.sh"],"summary":"Wrote it.","complete":true}`,
	"coder.sh":            "echo 'echo hello' > greet.sh\n",
	"code_reviewer.json":  `{"approved":true,"blocking":false,"summary":"Good."}`,
	"verifier.json": `{"summary":"Met.","criteria_results":[
		{"prd_id":"ac-1","passed":true,"evidence":"sh check.sh","issue_name":"add-greet"}]}`,
	"lens.json": `{"findings":[]}`,
	"git.json":  `{"title":"Greet people","summary":"Adds a greeting."}`,
}

// companyCalls is how often the company is asked: ten lenses, and each of the
// others once. A call costs a thousandth of a dollar.
const companyCalls = 17

var plan1 = planned(`{"name":"add-greet"}`)

// planned is a plan of the issues, each a name and what it depends on.
func planned(issues ...string) string {
	for i, is := range issues {
		issues[i] = strings.TrimSuffix(is, "}") + `,"title":"An issue","description":"Do it.","guidance":{"risk_rationale":"A new file."},` +
			`"acceptance_criteria":[{"text":"It is there.","prd_ids":["ac-1"]}]}`
	}
	return fmt.Sprintf(`{"rationale":"Small steps.","issues":[%s]}`, strings.Join(issues, ","))
}

// but is the company with other parts.
func (c cast) but(parts cast) cast {
	all := maps.Clone(c)
	maps.Copy(all, parts)
	return all
}

// hire writes the cast to a directory and returns it, with the flags that make
// slipway build use the cast.
func (c cast) hire(t testing.TB) (dir string, flags []string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range c {
		if strings.HasSuffix(name, ".json") {
			text = strings.Join(strings.Fields(text), " ") // an answer is one line
		}
		write(t, dir, map[string]string{name: text})
	}
	program := filepath.Join(dir, "agent.sh")
	if err := os.WriteFile(program, []byte(play), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, []string{"--runtime", "command", "--agent-command", "sh " + program}
}

// on builds a goal in the repository with the cast.
func (c cast) on(t *terminal, repo string) (typed, done) {
	t.Helper()
	_, flags := c.hire(t)
	return t.build(append(flags, "--repo", repo, "--goal", "Greet people")...)
}

// A run is a slipway build that has begun and not ended.
type run struct {
	*terminal
	build string // its id
	cast  string // directory of its agents
	cmd   *exec.Cmd
	out   *bytes.Buffer // what it said, complete after wait
	err   *bytes.Buffer
	read  chan struct{} // closed when out is complete
}

// start begins a build and returns when its id is known.
func (c cast) start(t *terminal, repo string, more ...string) *run {
	t.Helper()
	dir, flags := c.hire(t)
	r := t.start(append(append([]string{"--repo", repo, "--goal", "Greet people"}, flags...), more...)...)
	r.cast = dir
	return r
}

// start begins a build and returns when its id is known.
func (t *terminal) start(args ...string) *run {
	t.Helper()
	r := &run{terminal: t, out: &bytes.Buffer{}, err: &bytes.Buffer{}, read: make(chan struct{})}
	r.cmd = t.command(append([]string{"build", "--json"}, args...)...)
	r.cmd.Stderr = r.err
	pipe, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(io.TeeReader(pipe, r.out))
	text, err := lines.ReadString('\n')
	var first line
	if err == nil {
		err = json.Unmarshal([]byte(text), &first)
	}
	if err != nil {
		_ = r.cmd.Process.Kill() // it may have ended
		_ = r.cmd.Wait()
		t.Fatalf("the build said nothing: %v\n%s", err, r.err)
	}
	r.build = first.Build
	go func() {
		defer close(r.read)
		_, _ = io.Copy(io.Discard, lines) // a broken pipe is the end of it
	}()
	return r
}

// wait returns when the build has ended.
func (r *run) wait() typed {
	r.Helper()
	<-r.read
	failed := r.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](failed); failed != nil && !exited {
		r.Fatal(failed)
	}
	return typed{code: r.cmd.ProcessState.ExitCode(), out: r.out.String(), err: r.err.String()}
}

// kill is what the kernel does when memory is short.
func (r *run) kill() {
	r.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		r.Fatal(err)
	}
	if end := r.wait(); end.code != -1 {
		r.Errorf("exit %d", end.code)
	}
}
