package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// codexHome is where in its HOME the CLI keeps what is its own.
const codexHome = ".codex"

// Files in codexHome.
const (
	codexConfigFile = "config.toml"
	codexSchemaFile = "schema.json"
	codexSessions   = "sessions"
)

// A codexSetup is what one start of the CLI finds in its HOME.
type codexSetup struct {
	Call
	mode string // of the CLI's own sandbox
}

func (s codexSetup) path(name string) string { return filepath.Join(s.Home, codexHome, name) }

// write replaces all that the CLI reads at its start. The agent before could
// write here: of what it left only the sessions stay, which are text.
func (s codexSetup) write() error {
	if s.Home == "" {
		return errors.New("it has no HOME")
	}
	home, err := os.OpenRoot(s.Home)
	if err != nil {
		return err
	}
	return errors.Join(s.writeIn(home), home.Close())
}

func (s codexSetup) writeIn(home *os.Root) error {
	info, err := home.Lstat(codexHome)
	if err == nil && !info.IsDir() {
		err = home.RemoveAll(codexHome)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := home.MkdirAll(codexHome, 0o700); err != nil {
		return err
	}
	own, err := home.OpenRoot(codexHome)
	if err != nil {
		return err
	}
	return errors.Join(s.writeOwn(own), own.Close())
}

func (s codexSetup) writeOwn(own *os.Root) error {
	left, err := fs.ReadDir(own.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range left {
		if entry.Name() == codexSessions && entry.IsDir() {
			continue
		}
		if err := own.RemoveAll(entry.Name()); err != nil {
			return err
		}
	}
	if schema := s.schema(); schema != nil {
		if err := own.WriteFile(codexSchemaFile, schema, 0o600); err != nil {
			return err
		}
	}
	return own.WriteFile(codexConfigFile, []byte(s.config()), 0o600)
}

// schema is what the API holds the answer to, nil where it can hold it to
// nothing; the prompt asks in its place.
func (s codexSetup) schema() json.RawMessage { return strictSchema(s.Schema) }

// prompt is what the CLI reads.
func (s codexSetup) prompt() string {
	task := s.Task(s.Session != "")
	if len(s.Schema) == 0 || s.schema() != nil {
		return task
	}
	return task + "\n\nEnd with one JSON value, and nothing after it, that fits this JSON Schema:\n" + string(s.Schema)
}

// codexOff are the features that are not for an agent of ours: other agents,
// code and instructions from elsewhere, the web, and what needs a person.
var codexOff = []string{
	"apps", "browser_use", "browser_use_external", "computer_use", "goals", "guardian_approval", "hooks", "image_generation", "memories",
	"multi_agent_v2", "plugins", "remote_plugin", "shell_snapshot", "skill_mcp_dependency_install", "sleep_tool", "tool_suggest",
	"workspace_dependencies",
}

// config is the configuration of one start.
func (s codexSetup) config() string {
	var b strings.Builder
	set := func(key string, value any) { fmt.Fprintf(&b, "%s = %s\n", key, tomlValue(value)) }
	table := func(name string) { fmt.Fprintf(&b, "\n[%s]\n", name) }

	if s.Model != "" {
		set("model", s.Model)
	}
	if s.Effort != "" {
		set("model_reasoning_effort", s.Effort)
	}
	if s.System != "" {
		set("developer_instructions", s.System)
	}
	set("model_provider", "slipway")
	set("approval_policy", "never")
	set("sandbox_mode", s.mode)
	set("web_search", "disabled")
	set("check_for_update_on_startup", false)
	set("project_doc_max_bytes", 0) // AGENTS.md is a file as any other
	set("allow_login_shell", false) // a profile may replace PATH
	set("include_apps_instructions", false)
	set("include_collaboration_mode_instructions", false)
	// A command that is silent is looked at before its silence is a stall.
	set("background_terminal_max_timeout", max(1000, s.Idle.Milliseconds()/3))

	table("model_providers.slipway")
	set("name", "slipway")
	set("base_url", s.tap.url())
	set("env_key", codexKey)
	set("wire_api", "responses")
	set("request_max_retries", 2)
	set("stream_max_retries", 3)
	set("stream_idle_timeout_ms", 2*s.Idle.Milliseconds()) // our own clock comes first

	if s.bridge != nil {
		table("mcp_servers." + bridgeName)
		set("command", s.bridge.command[0])
		set("args", s.bridge.command[1:])
		set("startup_timeout_sec", 60)
		set("tool_timeout_sec", functionSeconds)
	}

	table("shell_environment_policy")
	set("exclude", []string{codexKey})

	table("sandbox_workspace_write")
	set("writable_roots", []string{s.Home})
	set("network_access", true) // as in a box of bubblewrap; builds fetch what they need

	// What a repository brings is not to be trusted, whatever was said before.
	table("projects." + tomlValue(s.Dir))
	set("trust_level", "untrusted")

	table("history")
	set("persistence", "none")
	table("analytics")
	set("enabled", false)
	table("feedback")
	set("enabled", false)
	table("otel")
	set("exporter", "none")
	set("trace_exporter", "none")
	set("metrics_exporter", "none")
	table("skills")
	set("include_instructions", false)
	table("skills.bundled")
	set("enabled", false)
	table("tools.experimental_request_user_input")
	set("enabled", false)
	table("agents")
	set("enabled", false)

	table("features")
	for _, name := range codexOff {
		set(name, false)
	}
	set("unbounded_connection_retries", false)
	// The CLI reads files with its shell only.
	shell := slices.ContainsFunc(s.Tools, func(t Tool) bool { return t == Bash || t == Read || t == Glob || t == Grep })
	set("shell_tool", shell)
	set("view_image", slices.Contains(s.Tools, Read))
	return b.String()
}

// tomlValue is a value as TOML, which spells texts as JSON does but for one
// character.
func tomlValue(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it is made of texts, numbers and truths
	}
	return strings.ReplaceAll(string(text), "\x7f", `\u007f`)
}
