package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"text/template"
)

// A Prompt is a role's prompt file. It defines two templates: "system", what
// the agent is and by which rules it works, and "prompt", the task of one call.
// Both see the role's input as dot. In them
//
//	{{data "ticket" .Goal}}   fences text that people or other agents wrote
//	{{json .Criteria}}        prints a value as indented JSON
//	{{schema}}                prints the JSON Schema of the output
type Prompt struct {
	tmpl   *template.Template
	digest string // of the text
}

// Load reads a role's prompt file, prompts/<role>.md, and those that it shares
// templates with. It panics on a missing or broken one: prompt files are part
// of the binary.
func Load(files fs.FS, role string, shared ...string) Prompt {
	var text strings.Builder
	for _, name := range append(shared, role) {
		part, err := fs.ReadFile(files, "prompts/"+name+".md")
		if err != nil {
			panic(err)
		}
		text.Write(part)
	}
	return Parse(role, text.String())
}

// Parse reads a prompt file. It panics on a broken one: prompt files are part
// of the binary.
func Parse(name, text string) Prompt {
	t := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{
		"data": fence, "json": indent, "schema": func() string { return "" },
	})
	t = template.Must(t.Parse(text))
	for _, part := range []string{"system", "prompt"} {
		if t.Lookup(part) == nil {
			panic(fmt.Sprintf("prompt %s does not define %q", name, part))
		}
	}
	return Prompt{tmpl: t, digest: digestOf([]byte(text))}
}

// Render returns both parts of the prompt for one input, with the schema of
// the output type; tests keep golden copies of it.
func Render[In, Out any](r Role[In, Out], in In) (system, prompt string, err error) {
	c, err := contractOf[Out]()
	if err != nil {
		return "", "", err
	}
	return r.Prompt.render(in, c.schema)
}

func (p Prompt) render(in any, schema json.RawMessage) (system, prompt string, err error) {
	t, err := p.tmpl.Clone()
	if err != nil {
		return "", "", fmt.Errorf("prompt: %w", err)
	}
	t.Funcs(template.FuncMap{"schema": func() (string, error) { return indent(schema) }})
	var out [2]string
	for i, part := range []string{"system", "prompt"} {
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, part, in); err != nil {
			return "", "", fmt.Errorf("render prompt: %w", err)
		}
		out[i] = strings.TrimSpace(b.String()) + "\n"
	}
	return out[0], out[1], nil
}

var fenceTag = regexp.MustCompile(`(?i)<([\s/]*data\b)`)

// fence marks text as data. A fence inside the text is defused, so the text
// cannot close its own.
func fence(name, text string) string {
	text = fenceTag.ReplaceAllString(text, "&lt;${1}")
	return fmt.Sprintf("<data name=%q>\n%s\n</data>", name, strings.TrimSpace(text))
}

func indent(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return "", err
	}
	return b.String(), nil
}
