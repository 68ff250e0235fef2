package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
)

// modelsOf are the roles that slipway doctor models --json printed.
func modelsOf(t *testing.T, end typed) map[string]app.RoleModel {
	t.Helper()
	rows := map[string]app.RoleModel{}
	for line := range strings.Lines(end.out) {
		var row struct {
			app.RoleModel
			Targets []struct {
				app.ModelTarget
				Price map[string]float64 `json:"usd_per_million_tokens"`
			} `json:"targets"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		for _, target := range row.Targets {
			if target.Model == "mine" && (target.Price["input"] != 2.5 || target.Price["cache_read"] != 0.25 || target.Price["cache_write"] != 2.5) {
				t.Errorf("the price of mine: %v", target.Price)
			}
			row.RoleModel.Targets = append(row.RoleModel.Targets, target.ModelTarget)
		}
		rows[row.Role] = row.RoleModel
	}
	if len(rows) != len(config.Roles()) {
		t.Fatalf("%d roles of %d: exit %d\n%s%s", len(rows), len(config.Roles()), end.code, end.out, end.err)
	}
	return rows
}

// doctored is a repository with models of its own, and a server's file.
func doctored(t *testing.T, models string) (repo, server string) {
	t.Helper()
	server = filepath.Join(t.TempDir(), "server.yml")
	const file = "prices: { mine: { input: 2.5, output: 10, cache_read: 0.25 } }\nrepository:\n  models: { default: 'mine@none', lens: 'command:mine' }\n  runtime: command\n"
	if err := os.WriteFile(server, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return newRepo(t, map[string]string{".github/slipway.yml": "models: {" + models + "}\n"}), server
}

func TestDoctorModels(t *testing.T) {
	t.Parallel()
	claude := modeltest.Claude(t)
	term := newTerminal(t, "SLIPWAY_CLAUDE="+claude, "ANTHROPIC_API_KEY=k3y")
	repo, server := doctored(t, "coder: 'claude_code:opus@high | mine'")
	// What is not committed does not count.
	write(t, repo, map[string]string{".github/slipway.yml": "models: {coder: other}\n"})
	ask := []string{"doctor", "models", "--repo", repo, "--config", server, "--agent-command", "true"}

	end := term.slipway(append(ask, "--json")...)
	if end.code != 0 {
		t.Errorf("exit %d: %s", end.code, end.err)
	}
	rows := modelsOf(t, end)
	for role, want := range map[string]struct {
		key, origin string
		first       app.ModelTarget
	}{
		"coder": {"models.coder", ".github/slipway.yml", app.ModelTarget{Runtime: "claude_code", Model: "opus", Effort: "high", Runs: true}},
		"lens":  {"models.lens", server, app.ModelTarget{Runtime: "command", Model: "mine", Runs: true}},
		"pm":    {"models.default", server, app.ModelTarget{Runtime: "command", Model: "mine", Effort: "none", Runs: true}},
	} {
		if row := rows[role]; row.Key != want.key || row.Origin != want.origin || row.Targets[0] != want.first {
			t.Errorf("%s: %+v, want %+v", role, row, want)
		}
	}
	if targets := rows["coder"].Targets; len(targets) != 2 || targets[1] != (app.ModelTarget{Runtime: "command", Model: "mine", Runs: true}) {
		t.Errorf("the coder's chain: %+v", targets)
	}

	end = term.slipway(ask...)
	for _, want := range []string{"coder claude_code yes opus high – – models.coder, .github/slipway.yml", "else command yes mine – $2.5 $10", "pm command yes mine none $2.5 $10 models.default, " + server} {
		if !strings.Contains(strings.Join(strings.Fields(end.out), " "), want) {
			t.Errorf("the table has no %q:\n%s", want, end.out)
		}
	}
	if strings.Contains(end.out+end.err, "k3y") {
		t.Error("a key is shown")
	}
}

func TestDoctorModelsOfARuntimeThatCannotRun(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, "SLIPWAY_CLAUDE=/nowhere/claude")
	end := term.slipway("doctor", "models")
	for _, want := range []string{"pm claude_code no sonnet – – – runtime default", "qa_synthesizer claude_code no haiku", "claude_code cannot be run here: Claude Code is not installed"} {
		if !strings.Contains(strings.Join(strings.Fields(end.out), " "), want) {
			t.Errorf("it does not say %q:\n%s", want, end.out)
		}
	}
	if end.code != 3 {
		t.Errorf("exit %d, want 3", end.code)
	}
	repo, server := doctored(t, "coder: 'mine | claude_code:opus'")
	end = term.slipway("doctor", "models", "--repo", repo, "--config", server, "--agent-command", "true", "--json")
	fallback := modelsOf(t, end)["coder"].Targets[1]
	if end.code != 3 || fallback.Runs || !strings.Contains(fallback.Problem, "not installed") {
		t.Errorf("exit %d, the fallback %+v", end.code, fallback)
	}
	end = term.slipway("doctor", "models", "--runtime", "command", "--agent-command", "true", "--json")
	if row := modelsOf(t, end)["pm"]; end.code != 0 || row.Origin != "--runtime" || !row.Targets[0].Runs {
		t.Errorf("exit %d, %+v", end.code, row)
	}
}

func TestDoctorRefuses(t *testing.T) {
	t.Parallel()
	good, server := doctored(t, "coder: mine")
	unfit, _ := doctored(t, "coder: 'opus@none'")
	slip, _ := doctored(t, "codr: opus")
	broken := filepath.Join(t.TempDir(), "s.yml")
	if err := os.WriteFile(broken, []byte("prices: { m: { input: 1 } }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"something unknown":              {[]string{"modles"}, 2, []string{"modles"}},
		"a word too many":                {[]string{"models", "coder"}, 2, []string{"coder"}},
		"what is no repository":          {[]string{"models", "--repo", t.TempDir()}, 2, []string{"--repo", "not a git repository"}},
		"an unknown runtime":             {[]string{"models", "--runtime", "gpt"}, 2, []string{"--runtime", "claude_code, open_code, codex, native, command, replay"}},
		"a mistake in the server's file": {[]string{"models", "--repo", good, "--config", broken}, 2, []string{"s.yml:1: prices.m: output is missing"}},
		"an unknown role in a repository's file": {
			[]string{"models", "--repo", slip, "--config", server}, 3, []string{".github/slipway.yml:1: models.codr: unknown key; valid here: architect, ci_fixer"},
		},
		"an effort that the runtime lacks": {
			[]string{"models", "--repo", unfit}, 3, []string{`models.coder: claude_code has no effort "none"; it has: low`, ".github/slipway.yml"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := newTerminal(t).slipway(append([]string{"doctor"}, row.args...)...)
			if end.code != row.code || end.out != "" {
				t.Errorf("exit %d, want %d; it printed %q", end.code, row.code, end.out)
			}
			for _, want := range row.want {
				if !strings.Contains(end.err, want) {
					t.Errorf("the answer does not say %q: %s", want, end.err)
				}
			}
		})
	}
}
