package runtime

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// openCodeCredentials are the variables that open a provider's door. A scratch
// HOME hides any log-in of the CLI.
var openCodeCredentials = []string{"OPENROUTER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"}

// openCodeCompatible is the CLI's name, by our settings, of the provider at
// OPENAI_BASE_URL.
const openCodeCompatible = "compatible"

// An openCodeRoute is the provider that a model is asked through, in the CLI's
// words.
type openCodeRoute struct {
	provider   string
	name       string // of the model, as the provider spells it
	base       string // URL; empty is the provider's own
	credential string // variable
}

// route finds the provider of a model: that of its prefix (openrouter/,
// openai/, anthropic/) where there is a credential for it; else OpenRouter, which
// has the models of all makers under their whole names; else the endpoint at
// OPENAI_BASE_URL.
func (r *OpenCode) route(model string) (openCodeRoute, error) {
	if model == "" {
		return openCodeRoute{}, &Error{Class: Fatal, Reason: "open_code has no model of its own: name one, such as openrouter/minimax/minimax-m2.5"}
	}
	base := func(key string) string { return strings.TrimSuffix(r.variable(key), "/") }
	routes := map[string]openCodeRoute{}
	if r.variable("OPENROUTER_API_KEY") != "" {
		routes["openrouter"] = openCodeRoute{provider: "openrouter", base: base("OPENROUTER_BASE_URL"), credential: "OPENROUTER_API_KEY"}
	}
	switch url := base("OPENAI_BASE_URL"); {
	case url != "": // a server of one's own may want no key
		routes["openai"] = openCodeRoute{provider: openCodeCompatible, base: url, credential: "OPENAI_API_KEY"}
	case r.variable("OPENAI_API_KEY") != "":
		routes["openai"] = openCodeRoute{provider: "openai", credential: "OPENAI_API_KEY"}
	}
	if r.variable("ANTHROPIC_API_KEY") != "" {
		url := base("ANTHROPIC_BASE_URL")
		if url != "" {
			url = strings.TrimSuffix(url, "/v1") + "/v1" // the CLI wants the version, others may not have it
		}
		routes["anthropic"] = openCodeRoute{provider: "anthropic", base: url, credential: "ANTHROPIC_API_KEY"}
	}
	prefix, rest, _ := strings.Cut(model, "/")
	if to, ok := routes[prefix]; ok && rest != "" {
		to.name = rest
		return to, nil
	}
	for _, to := range []openCodeRoute{routes["openrouter"], routes["openai"]} {
		if to.provider == "openrouter" || to.provider == openCodeCompatible {
			to.name = model
			return to, nil
		}
	}
	return openCodeRoute{}, &Error{Class: Fatal, Reason: fmt.Sprintf("there is no credential for the model %s: %s", model, openCodeKeys)}
}

// openCodeKeys says how to give a credential.
const openCodeKeys = "set OPENROUTER_API_KEY, or OPENAI_API_KEY (with OPENAI_BASE_URL for a server of your own), or ANTHROPIC_API_KEY for the worker"

// variable returns what a call finds under key, empty when there is none.
func (r *OpenCode) variable(key string) string {
	for _, entry := range slices.Concat(r.opts.Secrets, r.opts.Env) {
		if value, ok := strings.CutPrefix(entry, key+"="); ok {
			return value
		}
	}
	return ""
}

// An openCodeConfig is the part of the CLI's settings that we make.
type openCodeConfig struct {
	Autoupdate bool                          `json:"autoupdate"`
	Share      string                        `json:"share"`
	Snapshot   bool                          `json:"snapshot"` // git objects for an undo that nobody asks for
	LSP        bool                          `json:"lsp"`
	Formatter  bool                          `json:"formatter"`
	Plugin     []string                      `json:"plugin"`
	Model      string                        `json:"model"`
	SmallModel string                        `json:"small_model"`
	Enabled    []string                      `json:"enabled_providers"`
	Providers  map[string]openCodeProvider   `json:"provider"`
	Permission openCodePermissions           `json:"permission"`
	Agents     map[string]openCodeAgentEntry `json:"agent"`
	MCP        map[string]openCodeMCP        `json:"mcp,omitempty"`
}

// openCodeMCP is an MCP server that the CLI starts.
type openCodeMCP struct {
	Type    string   `json:"type"`
	Command []string `json:"command"`
	Enabled bool     `json:"enabled"`
	Timeout int64    `json:"timeout"` // milliseconds
}

type openCodeProvider struct {
	NPM     string                   `json:"npm,omitempty"`
	Name    string                   `json:"name,omitempty"`
	Env     []string                 `json:"env,omitempty"`
	Options map[string]string        `json:"options,omitempty"`
	Models  map[string]openCodeModel `json:"models"`
}

// openCodeModel adds to what the CLI knows of a model, which may be nothing.
type openCodeModel struct {
	Tools bool `json:"tool_call"`
}

type openCodeAgentEntry struct {
	Mode       string              `json:"mode,omitempty"`
	Prompt     string              `json:"prompt,omitempty"`
	Permission openCodePermissions `json:"permission,omitempty"`
}

// openCodePermissions are rules: a permission → allow, deny, or patterns of it.
// The last rule that fits counts; encoding/json writes * before all others.
type openCodePermissions map[string]any

// openCodeTools are the CLI's permissions for the tools that roles are granted.
// It has one for everything that changes files.
var openCodeTools = map[Tool]string{Read: "read", Write: "edit", Edit: "edit", Bash: "bash", Glob: "glob", Grep: "grep"}

// permissions grant the tools of the call and nothing else: neither subagents
// nor the web, nor asking anyone.
func (r *OpenCode) permissions(c Call) openCodePermissions {
	p := openCodePermissions{"*": "deny", "doom_loop": "allow"} // MaxTurns ends a loop
	searches := r.searches()
	for _, tool := range c.Tools {
		if name, ok := openCodeTools[tool]; ok && (searches || tool != Grep && tool != Glob) {
			p[name] = "allow"
		}
	}
	for _, name := range c.bridge.names() {
		p[bridgeName+"_"+name] = "allow"
	}
	if r.opts.Box.Mode() == sandbox.Bubblewrap {
		p["external_directory"] = "allow" // there is nothing outside to be seen
		return p
	}
	outside := map[string]string{"*": "deny"}
	for _, dir := range c.ReadOnlyDirs {
		outside[filepath.Join(dir, "*")] = "allow"
	}
	p["external_directory"] = outside
	return p
}

func (r *OpenCode) config(c Call, to openCodeRoute, own openCodeDir) openCodeConfig {
	provider := openCodeProvider{Models: map[string]openCodeModel{to.name: {Tools: true}}}
	if to.base != "" {
		provider.Options = map[string]string{"baseURL": to.base}
	}
	if to.provider == openCodeCompatible {
		provider.NPM, provider.Name, provider.Env = "@ai-sdk/openai-compatible", "OpenAI-compatible", []string{to.credential}
		if r.variable(to.credential) == "" {
			provider.Options["apiKey"] = "none"
		}
	}
	model := to.provider + "/" + to.name
	allowed := r.permissions(c)
	conf := openCodeConfig{
		Share: "disabled", Plugin: []string{"file://" + own.plugin()},
		Model: model, SmallModel: model, Enabled: []string{to.provider},
		Providers:  map[string]openCodeProvider{to.provider: provider},
		Permission: allowed,
		Agents:     map[string]openCodeAgentEntry{openCodeAgent: {Mode: "primary", Permission: allowed}},
	}
	if c.bridge != nil {
		conf.MCP = map[string]openCodeMCP{bridgeName: {Type: "local", Command: c.bridge.command, Enabled: true, Timeout: 1000 * functionSeconds}}
	}
	return conf
}

// encode returns the settings as JSON.
func (conf openCodeConfig) encode() (string, error) {
	text, err := json.Marshal(conf)
	return string(literal(text)), err
}

// literal keeps the CLI from replacing {env:…} and {file:…} in what others
// wrote. It does so before it reads the JSON, whose own braces are never
// followed by these words.
func literal(conf []byte) []byte {
	for _, word := range []string{"env:", "file:"} {
		conf = bytes.ReplaceAll(conf, []byte("{"+word), []byte(`\u007b`+word))
	}
	return conf
}

// An openCodeDir is the directory of one call that the CLI is started in. It
// has the settings that are too large for a variable, and the plugin. Under
// bubblewrap it is read-only.
type openCodeDir struct{ path string }

func (d openCodeDir) config() string { return filepath.Join(d.path, "config") }

// home stands for HOME where the CLI looks for settings. It is empty.
func (d openCodeDir) home() string   { return filepath.Join(d.path, "home") }
func (d openCodeDir) plugin() string { return filepath.Join(d.path, "events.js") }

// nothing is an empty file.
func (d openCodeDir) nothing() string { return filepath.Join(d.path, "nothing") }

// models is a list of models in place of the CLI's own, if it exists.
func (d openCodeDir) models() string { return filepath.Join(d.path, "models.json") }

// newOpenCodeDir makes the directory; the caller removes it.
func newOpenCodeDir(c Call, to openCodeRoute) (openCodeDir, error) {
	path, err := os.MkdirTemp("", "slipway-opencode-")
	if err == nil {
		path, err = filepath.EvalSymlinks(path) // the CLI sees it by its real name
	}
	d := openCodeDir{path: path}
	if err != nil {
		return d, err
	}
	if err := d.fill(c, to); err != nil {
		_ = os.RemoveAll(path)
		return d, err
	}
	return d, nil
}

func (d openCodeDir) fill(c Call, to openCodeRoute) error {
	conf, err := json.Marshal(struct {
		Agents map[string]openCodeAgentEntry `json:"agent"`
	}{map[string]openCodeAgentEntry{openCodeAgent: {Prompt: openCodeSystem(c)}}})
	if err != nil {
		return err
	}
	settings := filepath.Join(d.config(), "opencode")
	for _, dir := range []string{d.home(), filepath.Join(settings, "node_modules")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	for name, content := range map[string][]byte{
		d.nothing():                                  nil,
		d.plugin():                                   openCodeEvents,
		filepath.Join(settings, "opencode.json"):     literal(conf),
		filepath.Join(settings, ".gitignore"):        nil, // else it writes one
		filepath.Join(settings, "package-lock.json"): openCodeLock,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
	if to.provider != openCodeCompatible {
		return nil
	}
	return os.WriteFile(d.models(), []byte("{}"), 0o600) // to read its own takes a second of CPU
}

// openCodeLock says that the library for plugins is installed, which ours does
// not use: the CLI would fetch it from npm.
var openCodeLock = []byte(`{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}`)

// openCodeSystem is what the role is told, in place of the CLI's own words to a
// person at a terminal.
func openCodeSystem(c Call) string {
	system := cmp.Or(c.System, "You do what you are asked with the tools that you have. Nobody can answer questions.")
	if len(c.Schema) == 0 {
		return system
	}
	return system + "\n\n# Your answer\n\nWhen you are done, end with a message that is one JSON value and nothing else: no words around it and no code fence. " +
		"It fits this JSON Schema:\n\n" + string(c.Schema)
}
