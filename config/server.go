package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Server is the configuration of one installation of Slipway: a YAML file, and
// over it the environment, where github.app_id is SLIPWAY_GITHUB_APP_ID and a
// list is separated by commas.
type Server struct {
	StateDir string // state_dir: store, mirrors, transcripts, caches
	Listen   string // listen: host:port of webhooks and dashboard
	RedisURL Secret // redis_url: where the store is, if not in the state directory; with its password
	Sandbox  string // sandbox: auto, bubblewrap, landlock or none
	Record   bool   // record: what agents do is kept, for slipway replay
	GitHub   GitHub
	Chat     Chat
	Slots    Slots
	Prices   Prices // prices: of models, beside the built-in ones or instead of them
	Repo     Repo   // repository: what counts where a repository and its owner say nothing; a layer
}

// GitHub is the App and the GitHub that it lives on.
type GitHub struct {
	AppID          int64    // github.app_id
	PrivateKey     Secret   // github.private_key, in PEM
	PrivateKeyFile string   // github.private_key_file: where the key is instead
	WebhookSecrets []Secret // github.webhook_secrets: every one is valid, for rotation
	BaseURL        string   // github.base_url of the API, with a slash at the end
	CAFile         string   // github.ca_file: certificates in PEM to trust beside those of the system; absolute
	Slug           string   // github.slug: the App's name in its address, by which it knows its own comments
}

// Chat says how people, and the bots that may, speak to Slipway on GitHub.
type Chat struct {
	Prefix     string   // chat.prefix: what a command starts with
	PerHour    int      // chat.per_hour: commands of one person in one installation; 0 is no bound
	Bots       []string // chat.bots: names of Apps, without [bot], whose commands count as those of a person with the role write
	BotsPerDay int      // chat.bots_per_day: commands of each of them in one installation
}

// Slots is how many jobs of a kind run at a time in this process.
type Slots struct {
	Deliveries int // slots.deliveries: webhooks being handled
	Builds     int // slots.builds
	Reviews    int // slots.reviews
}

const (
	envPrefix   = "SLIPWAY_"
	repoSection = "repository"
	publicAPI   = "https://api.github.com/"
)

var sandboxModes = []string{"auto", "bubblewrap", "landlock", "none"}

var serverKnobs = []knob[Server]{
	words("state_dir", func(s *Server) *string { return &s.StateDir }, absolute),
	words("listen", func(s *Server) *string { return &s.Listen }, checkListen),
	kept("redis_url", func(s *Server) *Secret { return &s.RedisURL }),
	words("sandbox", func(s *Server) *string { return &s.Sandbox }, checkSandbox),
	switched("record", func(s *Server) *bool { return &s.Record }),
	newKnob("github.app_id", func(s *Server) *int64 { return &s.GitHub.AppID }, readID, func(v int64) string { return fmt.Sprint(v) }),
	kept("github.private_key", func(s *Server) *Secret { return &s.GitHub.PrivateKey }),
	words("github.private_key_file", func(s *Server) *string { return &s.GitHub.PrivateKeyFile }, absolute),
	newKnob("github.webhook_secrets", func(s *Server) *[]Secret { return &s.GitHub.WebhookSecrets }, readSecrets, func([]Secret) string { return redacted }),
	words("github.base_url", func(s *Server) *string { return &s.GitHub.BaseURL }, checkURL),
	words("github.ca_file", func(s *Server) *string { return &s.GitHub.CAFile }, absolute),
	words("github.slug", func(s *Server) *string { return &s.GitHub.Slug }, checkSlug),
	words("chat.prefix", func(s *Server) *string { return &s.Chat.Prefix }, checkPrefix),
	whole("chat.per_hour", func(s *Server) *int { return &s.Chat.PerHour }, 0, 10_000),
	newKnob("chat.bots", func(s *Server) *[]string { return &s.Chat.Bots }, readBots, func(v []string) string { return strings.Join(v, ", ") }),
	whole("chat.bots_per_day", func(s *Server) *int { return &s.Chat.BotsPerDay }, 1, 10_000),
	whole("slots.deliveries", func(s *Server) *int { return &s.Slots.Deliveries }, 1, 256),
	whole("slots.builds", func(s *Server) *int { return &s.Slots.Builds }, 1, 64),
	whole("slots.reviews", func(s *Server) *int { return &s.Slots.Reviews }, 1, 64),
	newKnob(pricesKey, func(s *Server) *Prices { return &s.Prices }, readPrices, Prices.String),
}

// LoadServer reads the file at path, if path is not empty, then the
// environment, given as os.Environ has it. The error of bad content is an
// *Error that lists every problem.
func LoadServer(path string, environ []string) (Server, error) {
	s := Server{
		Listen: "127.0.0.1:8080", Sandbox: "auto", Slots: Slots{Deliveries: 16, Builds: 2, Reviews: 2},
		Chat: Chat{Prefix: "/", PerHour: 200, BotsPerDay: 10},
		Repo: Repo{Models: Models{}, origins: map[string]string{}},
	}
	env := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	if path != "" {
		file, err := os.ReadFile(path)
		if err != nil {
			return Server{}, fmt.Errorf("read server configuration: %w", err)
		}
		if err := s.readFile(file, path); err != nil {
			return Server{}, err
		}
	}
	if err := s.readEnv(env); err != nil {
		return Server{}, err
	}
	if s.StateDir == "" {
		dir, err := stateDir(env)
		if err != nil {
			return Server{}, err
		}
		s.StateDir = dir
	}
	s.GitHub.fill()
	return s, nil
}

// Variables are the names of the environment variables that configure a server.
func Variables() []string {
	var out []string
	for _, k := range serverKnobs {
		out = append(out, envName(k.key))
	}
	return out
}

// Missing explains each credential that the App still lacks, and how to set
// it; nil when it can talk to GitHub.
func (s Server) Missing() []string {
	out := s.MissingApp()
	if len(s.GitHub.WebhookSecrets) == 0 {
		out = append(out, lacks("the webhook secret of the GitHub App (as it was entered on its settings page)", "github.webhook_secrets"))
	}
	return out
}

// MissingApp is Missing for a worker, which receives no webhooks.
func (s Server) MissingApp() []string {
	var out []string
	if s.GitHub.AppID == 0 {
		out = append(out, lacks("the id of the GitHub App (on its settings page, \"App ID\")", "github.app_id"))
	}
	if s.GitHub.PrivateKey == "" && s.GitHub.PrivateKeyFile == "" {
		out = append(out, lacks("the private key of the GitHub App (its settings page makes one; a .pem file)", "github.private_key_file"))
	}
	return out
}

func lacks(what, key string) string {
	return fmt.Sprintf("%s: set %s in the configuration file, or %s in the environment", what, key, envName(key))
}

// Key returns the App's private key in PEM, from wherever it is kept.
func (g GitHub) Key() (Secret, error) {
	if g.PrivateKey != "" {
		return g.PrivateKey, nil
	}
	if g.PrivateKeyFile == "" {
		return "", errors.New("no private key is configured")
	}
	key, err := os.ReadFile(g.PrivateKeyFile)
	if err != nil {
		return "", fmt.Errorf("read private key: %w", err)
	}
	if len(key) == 0 {
		return "", fmt.Errorf("read private key: %s is empty", g.PrivateKeyFile)
	}
	return Secret(key), nil
}

func (s *Server) readFile(file []byte, origin string) error {
	in := reader[Server]{knobs: serverKnobs, into: s, origin: origin, origins: map[string]string{}}
	in.other = func(key string, n *yaml.Node) ([]Problem, bool) {
		if key != repoSection {
			return nil, false
		}
		r := reader[Repo]{knobs: repoKnobs, into: &s.Repo, origin: origin, origins: s.Repo.origins, other: refusePrices}
		r.section("", n)
		for i := range r.problems {
			r.problems[i].Key = strings.TrimSuffix(repoSection+"."+r.problems[i].Key, ".")
		}
		return r.problems, true
	}
	return in.read(file)
}

func (s *Server) readEnv(env map[string]string) error {
	var problems []Problem
	known := map[string]bool{}
	for _, k := range serverKnobs {
		name := envName(k.key)
		known[name] = true
		value, ok := env[name]
		if !ok || value == "" { // an empty variable is how a shell leaves one out
			continue
		}
		if err := k.read(s, &yaml.Node{Kind: yaml.ScalarNode, Value: value}); err != nil {
			problems = append(problems, Problem{Key: name, Text: err.Error()})
		}
	}
	// Credentials under a misspelt name must not look like none at all.
	for name := range env {
		if strings.HasPrefix(name, envPrefix+"GITHUB_") && !known[name] {
			problems = append(problems, Problem{Key: name, Text: "unknown variable; valid: " + strings.Join(gitHubVariables(), ", ")})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) })
	return &Error{Origin: "environment", Problems: problems}
}

func gitHubVariables() []string {
	var out []string
	for _, k := range serverKnobs {
		if strings.HasPrefix(k.key, "github.") {
			out = append(out, envName(k.key))
		}
	}
	return out
}

func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// stateDir is where state lives by the XDG rules; the variable counts only
// when it is absolute.
func stateDir(env map[string]string) (string, error) {
	if dir := env["XDG_STATE_HOME"]; filepath.IsAbs(dir) {
		return filepath.Join(dir, "slipway"), nil
	}
	if home := env["HOME"]; filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "slipway"), nil
	}
	return "", errors.New("no place for the state directory: set SLIPWAY_STATE_DIR, XDG_STATE_HOME or HOME to an absolute path")
}

// fill completes what follows from elsewhere.
func (g *GitHub) fill() {
	g.Slug = cmp.Or(g.Slug, "slipway")
	if g.BaseURL = cmp.Or(g.BaseURL, publicAPI); !strings.HasSuffix(g.BaseURL, "/") {
		g.BaseURL += "/"
	}
}

var slug = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func checkSlug(s string) error {
	if !slug.MatchString(s) {
		return fmt.Errorf("%q is no App's name: use the last part of its address, such as my-slipway", s)
	}
	return nil
}

func readID(n *yaml.Node) (int64, error) {
	v, err := readInt(n, 1, 1<<53)
	return int64(v), err
}

// readSecrets reads a list of secrets, or the one text of a variable with
// commas between them.
func readSecrets(n *yaml.Node) ([]Secret, error) {
	nodes, ok := listed(n)
	switch {
	case !ok:
		return nil, errors.New("want a list of secrets, such as [\"…\"]")
	case len(nodes) == 0:
		return nil, errors.New("an empty list of secrets accepts nothing; leave the key out instead")
	}
	var out []Secret
	for _, node := range nodes {
		secret, err := readSecret(node)
		if err != nil {
			return nil, err
		}
		out = append(out, secret)
	}
	return out, nil
}

// readBots reads the names of Apps.
func readBots(n *yaml.Node) ([]string, error) {
	nodes, ok := listed(n)
	if !ok {
		return nil, errors.New("want a list of Apps, such as [renovate], got " + describe(n))
	}
	var out []string
	for _, node := range nodes {
		name, err := readText(node)
		if err != nil {
			return nil, err
		}
		name = strings.ToLower(strings.TrimSuffix(name, "[bot]"))
		if err := checkSlug(name); err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	return out, nil
}

// listed are the nodes of a list, or of the one text of a variable with commas
// between them.
func listed(n *yaml.Node) (nodes []*yaml.Node, ok bool) {
	if n.Kind == yaml.SequenceNode {
		return n.Content, true
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "" {
		return nil, false
	}
	for part := range strings.SplitSeq(n.Value, ",") {
		nodes = append(nodes, &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(part)})
	}
	return nodes, true
}

// A prefix starts with a sign, so that prose is no command, and a word in it
// ends with one, so that it does not run into the command's.
var commandPrefix = regexp.MustCompile(`^([/!.]|[/!.@][a-z0-9]+(-[a-z0-9]+)*[ :/])$`)

func checkPrefix(s string) error {
	if !commandPrefix.MatchString(s) {
		return fmt.Errorf("want / or a word such as \"/slipway \" with the blank behind it, got %q", s)
	}
	return nil
}

func absolute(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("want an absolute path, got %q", path)
	}
	return nil
}

func checkListen(s string) error {
	if _, _, err := net.SplitHostPort(s); err != nil {
		return fmt.Errorf("want host:port such as 127.0.0.1:8080, got %q", s)
	}
	return nil
}

func checkSandbox(s string) error {
	if !slices.Contains(sandboxModes, s) {
		return fmt.Errorf("unknown mode %q; there are: %s", s, strings.Join(sandboxModes, ", "))
	}
	return nil
}

// checkURL wants https, since tokens travel there; http only to this machine.
func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("want an address such as https://github.example.com/api/v3/, without user, query or fragment")
	}
	addr, notIP := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || notIP == nil && addr.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return errors.New("want https; http is only for this machine")
	}
	return nil
}
