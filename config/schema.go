package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// A form is what a JSON Schema says of a value, and nothing that Parse would
// not say too. Parse knows more: which chains of models make sense, which names
// git refuses for a branch.
type form struct {
	Type        string   `json:"type"`
	Description string   `json:"description,omitempty"`
	Default     any      `json:"default,omitempty"`
	Enum        []string `json:"enum,omitempty"`
	Pattern     string   `json:"pattern,omitempty"`
	MaxLength   int      `json:"maxLength,omitempty"` // in characters
	Minimum     *float64 `json:"minimum,omitempty"`
	Above       *float64 `json:"exclusiveMinimum,omitempty"`
	Maximum     *float64 `json:"maximum,omitempty"`
	Items       *form    `json:"items,omitempty"`
	MinItems    int      `json:"minItems,omitempty"`
}

// list is the form of a list of texts, not empty.
func list(pattern string) form {
	return form{Type: "array", MinItems: 1, Items: &form{Type: "string", Pattern: pattern}}
}

func number(v float64) *float64 { return &v }

func between(least, most int) form {
	return form{Type: "integer", Minimum: number(float64(least)), Maximum: number(float64(most))}
}

// A section is the schema of a mapping. One without keys is legal YAML, and
// null.
type section struct {
	Type       []string            `json:"type"`
	Properties map[string]property `json:"properties"`
	Closed     bool                `json:"additionalProperties"`
}

// A property is the schema of a key: the form of its value, or a section.
type property interface{ property() }

func (form) property()     {}
func (*section) property() {}

func newSection() *section {
	return &section{Type: []string{"object", "null"}, Properties: map[string]property{}}
}

// Schema is the JSON Schema of a repository's configuration, draft 2020-12,
// made from the knobs. About describes a key in one sentence. Whatever Parse
// takes the schema takes; where it takes more, Parse is right.
func Schema(about func(key string) string) ([]byte, error) {
	defaults := Defaults()
	root := newSection()
	for _, k := range repoKnobs {
		at, name := root, k.key
		if head, rest, ok := strings.Cut(k.key, "."); ok {
			below, known := at.Properties[head].(*section)
			if !known {
				below = newSection()
				at.Properties[head] = below
			}
			at, name = below, rest
		}
		f := k.form
		f.Description = about(k.key)
		if shown := k.show(&defaults); shown != "" {
			f.Default = json.RawMessage(shown)
			if f.Type == "string" {
				f.Default = shown
			}
		}
		at.Properties[name] = f
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		Schema string `json:"$schema"`
		ID     string `json:"$id"`
		Title  string `json:"title"`
		*section
	}{"https://json-schema.org/draft/2020-12/schema", "https://github.com/slipway-dev/slipway/blob/main/docs/slipway.schema.json", "Slipway: .github/slipway.yml", root})
	if err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	return out.Bytes(), nil
}
