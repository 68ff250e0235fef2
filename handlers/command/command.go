// Package command is the grammar of what people type: the table of commands and
// the parser of a comment's first line.
//
// A comment is a command when its very first character starts the prefix and a
// word that is ours follows. A quoted line, an indented one and a code fence
// start with something else and are therefore never commands; later lines are
// text, whatever they look like.
package command

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

// Name names a command.
type Name string

// The commands.
const (
	Build   Name = "build"
	Review  Name = "review"
	Fix     Name = "fix"
	Approve Name = "approve"
	Revise  Name = "revise"
	Reject  Name = "reject"
	Answer  Name = "answer"
	Steer   Name = "steer"
	Cancel  Name = "cancel"
	Resume  Name = "resume"
	Status  Name = "status"
	Config  Name = "config"
	Help    Name = "help"
)

// A Spec says who may run a command and how it is typed.
type Spec struct {
	Name    Name
	Role    forge.Role // the least role that may run it
	Usage   string     // without the prefix
	Help    string     // one line
	text    string     // what the text is called in usage, if there has to be one
	options []option
}

type option struct {
	name  string // with its dashes
	value string // what the value is called in usage; empty where there is none
	set   func(*Command, string) (rule string)
}

// usage is the option as it is typed.
func (o option) usage() string { return strings.TrimSpace(o.name + " " + o.value) }

var specs = []Spec{
	{
		Name: Build, Role: forge.Write,
		Usage: "build [--plan-only] [--budget USD] [--base BRANCH] [--max-parallel N] [--targets A,B] [--fast] [text]",
		Help:  "build this issue and open a draft pull request",
		options: []option{
			{"--plan-only", "", setPlanOnly},
			{"--budget", "USD", setBudget},
			{"--base", "BRANCH", setBase},
			{"--max-parallel", "N", setMaxParallel},
			{"--targets", "A,B", setTargets},
			{"--fast", "", setFast},
		},
	},
	{
		Name: Review, Role: forge.Triage,
		Usage: "review [--full] [--fix] [--focus LENS,LENS] [--severity S] [PATHS]",
		Help:  "review this pull request; on an issue, its open Slipway pull request",
		options: []option{
			{"--full", "", setFull},
			{"--fix", "", setFix},
			{"--focus", "LENS,LENS", setFocus},
			{"--severity", "S", setSeverity},
		},
	},
	{
		Name: Fix, Role: forge.Write, Usage: "fix [finding ids | ci | conflicts | text]",
		Help: "change this pull request: apply the findings with these numbers, or all; mend CI; merge its base; or do what you say",
	},
	{Name: Approve, Role: forge.Write, Usage: "approve HASH", Help: "build the plan, take the result, start the subagent, or run the commit of a fork that this names"},
	{Name: Revise, Role: forge.Write, Usage: "revise TEXT", text: "TEXT", Help: "have the plan that waits made anew, with what you say"},
	{Name: Reject, Role: forge.Write, Usage: "reject [TEXT]", Help: "refuse the plan that waits, or every result, which ends the build, or the subagent that TEXT begins with"},
	{Name: Answer, Role: forge.Write, Usage: "answer TEXT", text: "TEXT", Help: "answer what an agent asked"},
	{Name: Steer, Role: forge.Write, Usage: "steer TEXT", text: "TEXT", Help: "tell the agents of the open build something before their next turn"},
	{Name: Cancel, Role: forge.Write, Usage: "cancel", Help: "stop the build of this issue and keep what is finished; whoever started it may, too"},
	{Name: Resume, Role: forge.Write, Usage: "resume", Help: "go on with the build that ended last; what ended badly is asked anew"},
	{Name: Status, Role: forge.Triage, Usage: "status", Help: "say how the build of this issue stands, and what it waits for"},
	{Name: Config, Role: forge.Read, Usage: "config", Help: "print the configuration that counts here, and where each value is from"},
	{Name: Help, Role: forge.Read, Usage: "help", Help: "list the commands that you may run"},
}

// All returns the commands in the order in which they are listed to people.
func All() []Spec { return append([]Spec(nil), specs...) }

// Of returns the spec of a command.
func Of(name Name) (Spec, bool) {
	for _, s := range specs {
		if s.Name == name {
			return s, true
		}
	}
	return Spec{}, false
}

// A Command is a parsed first line with the text that followed it.
type Command struct {
	Name        Name
	Base        string // a branch name, or empty
	MaxParallel int    // 0 when it was not given
	Budget      int64  // micro-dollars; 0 when it was not given
	PlanOnly    bool
	Fast        bool
	Targets     []string // of a build: each builds it, and one is chosen; none, or from two to MaxTargets
	Full        bool     // of a review: also what was reviewed before
	Fix         bool     // of a review: what it confirms is mended
	Focus       []string // of a review: names of lenses, or none
	Severity    string   // of a review: the least that counts, or empty
	Paths       []string // of a review: patterns of what it looks at, or none
	Hash        string   // of a plan or a commit, as typed behind approve: 1 to 64 hex digits, or empty where nothing like it was typed
	Text        string   // untrusted; CRLF turned into LF, trimmed
}

// An Error says what was wrong with a line that was certainly meant for us.
// Value is what was typed and is not to be trusted.
type Error struct {
	Field string // command, or the option
	Value string
	Rule  string
}

// Error names the field and the rule.
func (e *Error) Error() string {
	if e.Value == "" {
		return e.Field + ": " + e.Rule
	}
	return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Rule)
}

// MaxParallelLimit is the largest value of --max-parallel.
const MaxParallelLimit = 64

// longPrefix always works, whatever prefix is configured.
const longPrefix = "/slipway "

// Parse reads a comment. ok is false when the comment is none of our business;
// an error (always an *Error) means that it is, and that it needs an answer.
//
// An unknown word is answered only when it was certainly typed at us, because
// other bots own other words and a line may begin with a path. It is certain
// after a prefix that names us (anything longer than one character, such as
// "/slipway "), and, after a bare "/", when the word is a slip of the keyboard
// away from one of our commands: the same first letter and one edit, a swap of
// neighbours being one; two edits for commands of six letters and more, if no
// letter is foreign to the command. So "/biuld" and "/stauts" are answered; "/cc
// @x", "/rebuild", "/usr/bin", "/lgtm" and "/rebase" are not.
func Parse(body, prefix string) (cmd Command, ok bool, err error) {
	body = strings.ReplaceAll(body, "\r\n", "\n")
	line, after, _ := strings.Cut(body, "\n")
	rest, certain, ok := cutPrefix(line, prefix)
	if !ok {
		return Command{}, false, nil
	}
	word, rest, ok := cutWord(rest)
	if !ok && !certain {
		return Command{}, false, nil
	}
	spec, known := Of(Name(strings.ToLower(word)))
	if !known {
		near, slip := nearest(strings.ToLower(word))
		if !certain && !slip {
			return Command{}, false, nil
		}
		return Command{}, true, unknownCommand(word, near)
	}
	cmd = Command{Name: spec.Name}
	text, err := cmd.takeOptions(spec, rest)
	if err != nil {
		return Command{}, true, err
	}
	cmd.Text = strings.TrimSpace(text + "\n" + after)
	switch {
	case spec.text != "" && cmd.Text == "":
		return Command{}, true, &Error{Field: string(spec.Name), Rule: "needs a text: " + spec.Usage}
	case cmd.PlanOnly && len(cmd.Targets) > 0:
		return Command{}, true, &Error{Field: "--targets", Rule: "compares what is built, and --plan-only builds nothing: leave one of the two out"}
	case spec.Name == Approve:
		cmd.Hash = hash(cmd.Text)
	case spec.Name == Review:
		if err := cmd.takePaths(text); err != nil {
			return Command{}, true, err
		}
	}
	return cmd, true, nil
}

// cutPrefix removes the configured prefix, or the long one. certain says that
// the prefix alone shows that we are meant.
func cutPrefix(line, prefix string) (rest string, certain, ok bool) {
	for _, p := range []string{longPrefix, prefix} {
		name := strings.TrimRight(p, " ")
		if name == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(line, p); ok {
			return strings.TrimLeft(rest, " \t"), len(name) > 1, true
		}
		if strings.TrimRight(line, " \t") == name && len(name) > 1 {
			return "", true, true
		}
	}
	return "", false, false
}

// cutWord takes the letters of the command. A word that runs into anything but
// space, as in a path, is no word.
func cutWord(s string) (word, rest string, ok bool) {
	word, rest = s, ""
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		word, rest = s[:i], s[i+1:]
	}
	for _, r := range word {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' {
			return word, rest, false
		}
	}
	return word, rest, word != ""
}

// takeOptions reads the options in front of the text and returns the text. The
// first word that is no option, or "--", ends them.
func (c *Command) takeOptions(spec Spec, line string) (text string, err error) {
	for {
		line = strings.TrimLeft(line, " \t")
		if !strings.HasPrefix(line, "--") {
			return line, nil
		}
		word, rest := cutField(line)
		if word == "--" {
			return rest, nil
		}
		name, value, inline := strings.Cut(word, "=")
		o, known := spec.option(name)
		if !known {
			return "", &Error{Field: "option", Value: name, Rule: spec.optionRule()}
		}
		if o.value == "" {
			if inline {
				return "", &Error{Field: name, Value: value, Rule: "takes no value"}
			}
			o.set(c, "")
			line = rest
			continue
		}
		if !inline {
			value, rest = cutField(strings.TrimLeft(rest, " \t"))
		}
		if value == "" || (!inline && strings.HasPrefix(value, "--")) {
			return "", &Error{Field: name, Rule: "needs a value: " + o.usage()}
		}
		if rule := o.set(c, value); rule != "" {
			return "", &Error{Field: name, Value: value, Rule: rule}
		}
		line = rest
	}
}

func cutField(s string) (field, rest string) {
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

func (s Spec) option(name string) (option, bool) {
	for _, o := range s.options {
		if o.name == name {
			return o, true
		}
	}
	return option{}, false
}

func (s Spec) optionRule() string {
	switch {
	case len(s.options) == 0 && s.text != "":
		return string(s.Name) + " takes no options; text that starts with dashes goes after --"
	case len(s.options) == 0:
		return string(s.Name) + " takes no options"
	}
	names := make([]string, len(s.options))
	for i, o := range s.options {
		names[i] = o.usage()
	}
	return "the options of " + string(s.Name) + " are " + strings.Join(names, ", ") + "; text that starts with dashes goes after --"
}

func unknownCommand(word string, near Name) error {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = string(s.Name)
	}
	rule := "the commands are " + strings.Join(names, ", ")
	if near != "" {
		rule = "did you mean " + string(near) + "? " + rule
	}
	if word == "" {
		return &Error{Field: "command", Rule: "a command must follow: " + rule}
	}
	return &Error{Field: "command", Value: word, Rule: rule}
}

func setMaxParallel(c *Command, v string) string {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > MaxParallelLimit {
		return "must be a whole number from 1 to " + strconv.Itoa(MaxParallelLimit)
	}
	c.MaxParallel = n
	return ""
}

func setBase(c *Command, v string) string {
	if !branchName(v) {
		return "must be the name of a branch"
	}
	c.Base = v
	return ""
}

// setBudget reads US dollars with the configuration's own words.
func setBudget(c *Command, v string) string {
	budget, err := config.ParseUSD(v)
	if err != nil {
		return "must be an amount in US dollars such as 25 or 12.50, more than 0 and at most a million"
	}
	c.Budget = int64(budget)
	return ""
}

// MaxTargets is how many builds --targets may start.
const MaxTargets = 4

func setTargets(c *Command, v string) string {
	targets := strings.Split(v, ",")
	different := slices.Compact(slices.Sorted(slices.Values(targets)))
	switch {
	case slices.ContainsFunc(targets, func(t string) bool { return config.CheckTarget(t) != nil }):
		return "must be targets with commas between them, each a runtime, or a runtime and a model such as open_code:openai/gpt-5@high; the runtimes are " +
			strings.Join(config.Runtimes(), ", ")
	case len(targets) == 1:
		return "compares at least two targets; leave it out to build once"
	case len(targets) > MaxTargets:
		return "compares at most " + strconv.Itoa(MaxTargets) + " targets; leave some out"
	case len(different) < len(targets):
		return "names a target twice; leave one out"
	}
	c.Targets = targets
	return ""
}

func setPlanOnly(c *Command, _ string) string {
	c.PlanOnly = true
	return ""
}

func setFast(c *Command, _ string) string {
	c.Fast = true
	return ""
}

func setFull(c *Command, _ string) string {
	c.Full = true
	return ""
}

func setFix(c *Command, _ string) string {
	c.Fix = true
	return ""
}

// lens is what a lens may be called.
var lens = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)

func setFocus(c *Command, v string) string {
	for name := range strings.SplitSeq(v, ",") {
		if !lens.MatchString(name) {
			return "must be names of lenses with commas between them, such as security,tests"
		}
		c.Focus = append(c.Focus, name)
	}
	return ""
}

func setSeverity(c *Command, v string) string {
	if !slices.Contains([]string{"critical", "high", "medium", "low"}, v) {
		return "must be critical, high, medium or low"
	}
	c.Severity = v
	return ""
}

// takePaths reads the words of a line as patterns.
func (c *Command) takePaths(line string) error {
	for p := range strings.FieldsSeq(line) {
		if _, err := path.Match(p, ""); err != nil || strings.HasPrefix(p, "/") {
			return &Error{Field: "path", Value: p, Rule: "must be a pattern of paths, such as src/ or *.go"}
		}
		c.Paths = append(c.Paths, p)
	}
	return nil
}

// hash is the first word of a text, in lower case, if it can begin the hash of
// a plan.
func hash(text string) string {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields[0]) > 64 || strings.Trim(strings.ToLower(fields[0]), "0123456789abcdef") != "" {
		return ""
	}
	return strings.ToLower(fields[0])
}
