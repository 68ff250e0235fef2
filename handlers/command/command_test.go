package command_test

import (
	"errors"
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
		"another prefix":             {"!build", "!", command.Command{Name: command.Build}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := command.Parse(tc.body, tc.prefix)
			if err != nil || !ok || got != tc.want {
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
		"unknown to us by name":   {"/slipway deploy", "/slipway ", "command", "the commands are build, status, cancel, help"},
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
		command.Build: forge.Write, command.Status: forge.Triage,
		command.Cancel: forge.Write, command.Help: forge.Read,
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
	for _, s := range []string{"/build --base main x", "/slipway", "/biuld\r\n", "/build --max-parallel=9\n\n/cancel", "> /build", "/\x00", "/build --base \xff"} {
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
			if cmd != (command.Command{}) {
				t.Fatalf("no command, yet %+v", cmd)
			}
			return
		}
		if _, known := command.Of(cmd.Name); !known {
			t.Fatalf("unknown command %q", cmd.Name)
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
