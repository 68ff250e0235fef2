package command_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

func TestParseCommands(t *testing.T) {
	for name, tc := range map[string]struct {
		body, prefix string
		want         command.Command
	}{
		"bare":                       {"/build", "/", command.Command{Name: command.Build}},
		"a phone's capital":          {"/Build", "/", command.Command{Name: command.Build}},
		"text on the line":           {"/build use the new API", "/", command.Command{Name: command.Build, Text: "use the new API"}},
		"text on the next lines":     {"/build\n\n- one\n- two\n", "/", command.Command{Name: command.Build, Text: "- one\n- two"}},
		"windows line ends":          {"/build now\r\nand then\r\n", "/", command.Command{Name: command.Build, Text: "now\nand then"}},
		"options":                    {"/build --base release/1.2 --max-parallel 3 go", "/", command.Command{Name: command.Build, Base: "release/1.2", MaxParallel: 3, Text: "go"}},
		"options with equals":        {"/build --max-parallel=64 --base=main", "/", command.Command{Name: command.Build, Base: "main", MaxParallel: 64}},
		"tabs and many spaces":       {"/build \t --base\tmain  x", "/", command.Command{Name: command.Build, Base: "main", Text: "x"}},
		"dashes inside the text":     {"/build document --verbose", "/", command.Command{Name: command.Build, Text: "document --verbose"}},
		"dashes after the separator": {"/build -- --verbose is broken", "/", command.Command{Name: command.Build, Text: "--verbose is broken"}},
		"a command in later text":    {"/status\n/cancel", "/", command.Command{Name: command.Status, Text: "/cancel"}},
		"status":                     {"/status", "/", command.Command{Name: command.Status}},
		"cancel with politeness":     {"/cancel please", "/", command.Command{Name: command.Cancel, Text: "please"}},
		"help with trailing space":   {"/help  ", "/", command.Command{Name: command.Help}},
		"long prefix":                {"/slipway build x", "/slipway ", command.Command{Name: command.Build, Text: "x"}},
		"long prefix beside a bare":  {"/slipway  status", "/", command.Command{Name: command.Status}},
		"flags have no value":        {"/build --fast --plan-only go", "/", command.Command{Name: command.Build, Fast: true, PlanOnly: true, Text: "go"}},
		"every option at once":       {"/build --plan-only --budget 12.50 --base next --max-parallel 2 --fast x", "/", command.Command{Name: command.Build, PlanOnly: true, Budget: 12_500_000, Base: "next", MaxParallel: 2, Fast: true, Text: "x"}},
		"targets":                    {"/build --targets claude_code,open_code:openai/gpt-5@high --fast", "/", command.Command{Name: command.Build, Targets: []string{"claude_code", "open_code:openai/gpt-5@high"}, Fast: true}},
		"a budget to the last place": {"/build --budget=0.000001", "/", command.Command{Name: command.Build, Budget: 1}},
		"a flag at the end":          {"/build --fast", "/", command.Command{Name: command.Build, Fast: true}},
		"a flag on the next line":    {"/build\n--fast", "/", command.Command{Name: command.Build, Text: "--fast"}},
		"approve":                    {"/approve 0123abc", "/", command.Command{Name: command.Approve, Hash: "0123abc", Text: "0123abc"}},
		"approve with thanks":        {"/approve 0123ABC thanks!\r\nGood plan.", "/", command.Command{Name: command.Approve, Hash: "0123abc", Text: "0123ABC thanks!\nGood plan."}},
		"approve on two lines":       {"/approve\n0123abc", "/", command.Command{Name: command.Approve, Hash: "0123abc", Text: "0123abc"}},
		"approve without a hash":     {"/approve", "/", command.Command{Name: command.Approve}},
		"approve what is no hash":    {"/approve the-plan", "/", command.Command{Name: command.Approve, Text: "the-plan"}},
		"approve a whole novel":      {"/approve " + strings.Repeat("a", 65), "/", command.Command{Name: command.Approve, Text: strings.Repeat("a", 65)}},
		"approve hostile text":       {"/approve `@mona`", "/", command.Command{Name: command.Approve, Text: "`@mona`"}},
		"revise":                     {"/revise no second package", "/", command.Command{Name: command.Revise, Text: "no second package"}},
		"revise on later lines":      {"/revise\r\n\r\n- one\r\n- two\r\n", "/", command.Command{Name: command.Revise, Text: "- one\n- two"}},
		"revise with a quote":        {"/revise as said:\n> /reject\n```\n/cancel\n```", "/", command.Command{Name: command.Revise, Text: "as said:\n> /reject\n```\n/cancel\n```"}},
		"reject without a word":      {"/reject", "/", command.Command{Name: command.Reject}},
		"reject with a reason":       {"/reject too large", "/", command.Command{Name: command.Reject, Text: "too large"}},
		"answer":                     {"/answer an account, not an address", "/", command.Command{Name: command.Answer, Text: "an account, not an address"}},
		"answer that begins so":      {"/answer -- --account", "/", command.Command{Name: command.Answer, Text: "--account"}},
		"steer":                      {"/Steer use the old API", "/", command.Command{Name: command.Steer, Text: "use the old API"}},
		"resume":                     {"/resume", "/", command.Command{Name: command.Resume}},
		"resume by our long name":    {"/slipway resume please", "/", command.Command{Name: command.Resume, Text: "please"}},
		"review":                     {"/review", "/", command.Command{Name: command.Review}},
		"review of some paths":       {"/review src/ *.go\nthank you", "/", command.Command{Name: command.Review, Paths: []string{"src/", "*.go"}, Text: "src/ *.go\nthank you"}},
		"review with all options": {"/review --full --fix --focus security,my-lens --severity high docs/", "/", command.Command{
			Name: command.Review, Full: true, Fix: true, Focus: []string{"security", "my-lens"}, Severity: "high", Paths: []string{"docs/"}, Text: "docs/",
		}},
		"another prefix": {"!build", "!", command.Command{Name: command.Build}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := command.Parse(tc.body, tc.prefix)
			if err != nil || !ok || !reflect.DeepEqual(got, tc.want) {
				t.Fatalf("Parse(%q) = %+v, %v, %v; want %+v", tc.body, got, ok, err, tc.want)
			}
		})
	}
}

func TestParseLeavesOthersAlone(t *testing.T) {
	for name, tc := range map[string]struct{ body, prefix string }{
		"empty":                         {"", "/"},
		"prose":                         {"please build this", "/"},
		"quoted":                        {"> /build", "/"},
		"fenced":                        {"```\n/build\n```", "/"},
		"indented code":                 {"    /build", "/"},
		"one space":                     {" /build", "/"},
		"second line":                   {"hello\n/build", "/"},
		"after a blank line":            {"\n/build", "/"},
		"inline code":                   {"`/build`", "/"},
		"inside a comment":              {"<!-- /build -->", "/"},
		"a path":                        {"/usr/bin is full", "/"},
		"a path that starts like ours":  {"/build/output is missing", "/"},
		"a word with a colon":           {"/build: broken", "/"},
		"another bot's word":            {"/cc @someone", "/"},
		"another bot's approval":        {"/lgtm", "/"},
		"another bot's near word":       {"/hold", "/"},
		"another bot's longer word":     {"/rebuild", "/"},
		"a path that begins as review":  {"/reviews/7 is wrong", "/"},
		"another bot's rebase":          {"/rebase", "/"},
		"another bot's retest":          {"/retest", "/"},
		"another bot's reset":           {"/reset", "/"},
		"another bot's assignment":      {"/assign @mona", "/"},
		"a path that begins so":         {"/resume/latest.pdf is out", "/"},
		"a quoted approval":             {"> /approve 0123abc\n\nreally?", "/"},
		"a fenced answer":               {"```\n/answer yes\n```", "/"},
		"only a slash":                  {"/", "/"},
		"a slash and a space":           {"/ build", "/!"},
		"bare word under a long prefix": {"/build", "/slipway "},
		"a word that begins as we do":   {"/slipways build", "/slipway "},
		"an empty prefix":               {"build", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok, err := command.Parse(tc.body, tc.prefix); ok || err != nil {
				t.Fatalf("Parse(%q) = %+v, %v, %v; want no command", tc.body, got, ok, err)
			}
		})
	}
}

func TestParseNamesTheFieldAndTheRule(t *testing.T) {
	for name, tc := range map[string]struct{ body, prefix, field, rule string }{
		"swapped letters":         {"/biuld", "/", "command", "did you mean build?"},
		"two slips in a long one": {"/stattsu", "/", "command", "did you mean status?"},
		"a dropped letter":        {"/cancl", "/", "command", "did you mean cancel?"},
		"a slip in approve":       {"/aprove 0123abc", "/", "command", "did you mean approve?"},
		"a slip in resume":        {"/resuem", "/", "command", "did you mean resume?"},
		"unknown to us by name":   {"/slipway deploy", "/slipway ", "command", "the commands are build, review, fix, approve, revise, reject, answer, steer, cancel, resume, status, config, help"},
		"revise nothing":          {"/revise", "/", "revise", "needs a text: revise TEXT"},
		"revise blanks":           {"/revise \t\r\n \r\n", "/", "revise", "needs a text: revise TEXT"},
		"answer nothing":          {"/answer", "/", "answer", "needs a text: answer TEXT"},
		"answer a separator":      {"/answer --", "/", "answer", "needs a text: answer TEXT"},
		"steer nothing":           {"/steer", "/", "steer", "needs a text: steer TEXT"},
		"text with dashes":        {"/revise --fast is too much", "/", "option", "text that starts with dashes goes after --"},
		"a flag with a value":     {"/build --fast=yes", "/", "--fast", "takes no value"},
		"no targets":              {"/build --targets", "/", "--targets", "needs a value: --targets A,B"},
		"one target":              {"/build --targets codex", "/", "--targets", "at least two targets; leave it out"},
		"five targets":            {"/build --targets codex,native,open_code:a,open_code:b,open_code:c", "/", "--targets", "at most 4 targets; leave some out"},
		"a target twice":          {"/build --targets codex,native,codex", "/", "--targets", "names a target twice; leave one out"},
		"an unknown target":       {"/build --targets codex,gpt", "/", "--targets", "the runtimes are claude_code, open_code"},
		"a target without a name": {"/build --targets codex, native", "/", "--targets", "with commas between them"},
		"targets of a plan":       {"/build --targets codex,native --plan-only", "/", "--targets", "--plan-only builds nothing: leave one of the two out"},
		"no budget":               {"/build --budget", "/", "--budget", "needs a value: --budget USD"},
		"a budget of nothing":     {"/build --budget 0", "/", "--budget", "amount in US dollars"},
		"a negative budget":       {"/build --budget -5", "/", "--budget", "amount in US dollars"},
		"a budget in words":       {"/build --budget lots", "/", "--budget", "amount in US dollars"},
		"a budget with a sign":    {"/build --budget $5", "/", "--budget", "amount in US dollars"},
		"a budget without end":    {"/build --budget 1e9", "/", "--budget", "amount in US dollars"},
		"more than anybody has":   {"/build --budget 9999999", "/", "--budget", "amount in US dollars"},
		"nothing after our name":  {"/slipway", "/slipway ", "command", "a command must follow"},
		"a mangled word":          {"/slipway build!", "/slipway ", "command", "the commands are"},
		"unknown option":          {"/build --fats", "/", "option", "--max-parallel N"},
		"option of none":          {"/status --json", "/", "option", "status takes no options"},
		"missing value":           {"/build --base", "/", "--base", "needs a value: --base BRANCH"},
		"empty value":             {"/build --base= x", "/", "--base", "needs a value"},
		"option for a value":      {"/build --base --max-parallel 3", "/", "--base", "needs a value"},
		"value on the next line":  {"/build --base\nmain", "/", "--base", "needs a value"},
		"not a number":            {"/build --max-parallel many", "/", "--max-parallel", "whole number from 1 to 64"},
		"zero":                    {"/build --max-parallel 0", "/", "--max-parallel", "whole number from 1 to 64"},
		"too large":               {"/build --max-parallel 65", "/", "--max-parallel", "whole number from 1 to 64"},
		"negative":                {"/build --max-parallel -1", "/", "--max-parallel", "whole number from 1 to 64"},
		"a branch with dots":      {"/build --base a..b", "/", "--base", "name of a branch"},
		"a branch that is a flag": {"/build --base=-f", "/", "--base", "name of a branch"},
		"a branch with a refspec": {"/build --base main:other", "/", "--base", "name of a branch"},
		"a lens that is none":     {"/review --focus a,,b", "/", "--focus", "names of lenses"},
		"a severity of its own":   {"/review --severity blocker", "/", "--severity", "critical, high, medium or low"},
		"a path that is none":     {"/review src/[", "/", "path", "pattern of paths"},
		"a path of the machine":   {"/review /etc/passwd", "/", "path", "pattern of paths"},
		"a slip in review":        {"/reviwe", "/", "command", "did you mean review?"},
		"a locked branch":         {"/build --base x.lock", "/", "--base", "name of a branch"},
	} {
		t.Run(name, func(t *testing.T) {
			_, ok, err := command.Parse(tc.body, tc.prefix)
			e, is := errors.AsType[*command.Error](err)
			if !ok || !is {
				t.Fatalf("Parse(%q) = %v, %v; want an *Error", tc.body, ok, err)
			}
			if e.Field != tc.field || !strings.Contains(e.Rule, tc.rule) {
				t.Fatalf("Parse(%q) = %q: %q; want field %q, rule with %q", tc.body, e.Field, e.Rule, tc.field, tc.rule)
			}
			if !strings.Contains(e.Error(), e.Field) || !strings.Contains(e.Error(), e.Rule) {
				t.Fatalf("%q hides the field or the rule", e.Error())
			}
		})
	}
}

func TestRolesAreTheProducts(t *testing.T) {
	want := map[command.Name]forge.Role{
		command.Build: forge.Write, command.Review: forge.Triage, command.Fix: forge.Write, command.Status: forge.Triage,
		command.Cancel: forge.Write, command.Help: forge.Read,
		command.Approve: forge.Write, command.Revise: forge.Write, command.Reject: forge.Write,
		command.Answer: forge.Write, command.Steer: forge.Write, command.Resume: forge.Write,
		command.Config: forge.Read,
	}
	if got := len(command.All()); got != len(want) {
		t.Fatalf("%d commands, want %d", got, len(want))
	}
	for _, s := range command.All() {
		if s.Role != want[s.Name] || s.Role == forge.None {
			t.Errorf("%s needs %s, want %s", s.Name, s.Role, want[s.Name])
		}
		if !strings.HasPrefix(s.Usage, string(s.Name)) || s.Help == "" || strings.Contains(s.Help, "\n") {
			t.Errorf("%s: usage %q, help %q", s.Name, s.Usage, s.Help)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"/build --base main x", "/slipway", "/biuld\r\n", "/build --max-parallel=9\n\n/cancel", "> /build", "/\x00", "/build --base \xff", "/build --fast --budget 1.5 x", "/approve 0123abc x", "/revise\n\n"} {
		f.Add(s, "/")
		f.Add(s, "/slipway ")
	}
	f.Fuzz(func(t *testing.T, body, prefix string) {
		cmd, ok, err := command.Parse(body, prefix)
		if err != nil {
			e, is := errors.AsType[*command.Error](err)
			if !ok || !is || e.Field == "" || e.Rule == "" {
				t.Fatalf("Parse(%q, %q) = %v, %#v", body, prefix, ok, err)
			}
			return
		}
		if !ok {
			if !reflect.DeepEqual(cmd, command.Command{}) {
				t.Fatalf("no command, yet %+v", cmd)
			}
			return
		}
		if _, known := command.Of(cmd.Name); !known {
			t.Fatalf("unknown command %q", cmd.Name)
		}
		if cmd.Budget < 0 || strings.Trim(cmd.Hash, "0123456789abcdef") != "" || len(cmd.Hash) > 64 {
			t.Fatalf("%+v", cmd)
		}
		if cmd.MaxParallel < 0 || cmd.MaxParallel > command.MaxParallelLimit {
			t.Fatalf("max parallel %d", cmd.MaxParallel)
		}
		if strings.HasPrefix(cmd.Base, "-") || strings.ContainsAny(cmd.Base, " :~^") {
			t.Fatalf("base %q", cmd.Base)
		}
		if first, _, _ := strings.Cut(body, "\n"); strings.HasPrefix(first, ">") && !strings.HasPrefix(prefix, ">") {
			t.Fatalf("a quote became %+v", cmd)
		}
	})
}
