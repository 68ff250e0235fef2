package runtime

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// strictSchema returns schema as the API's strict mode takes it, the only one
// that the CLI knows: every property is required, and one that need not be there
// may be null. It is nil where that cannot be said, as of an object with any
// properties.
func strictSchema(schema json.RawMessage) json.RawMessage {
	var s jsonschema.Schema
	if len(schema) == 0 || json.Unmarshal(schema, &s) != nil || s.Type != "object" {
		return nil
	}
	strict, ok := strictly(&s)
	if !ok {
		return nil
	}
	text, err := json.Marshal(strict)
	if err != nil {
		return nil
	}
	return text
}

// strictly keeps of s what the strict mode knows. Bounds of texts are left to
// whoever checks the answer.
func strictly(s *jsonschema.Schema) (*jsonschema.Schema, bool) {
	if s == nil || s.Ref != "" || s.DynamicRef != "" || s.AllOf != nil || s.OneOf != nil || s.Not != nil || s.If != nil || s.PatternProperties != nil {
		return nil, false
	}
	if s.Type == "" && len(s.Types) == 0 && s.AnyOf == nil && s.Enum == nil {
		return nil, false // anything
	}
	out := &jsonschema.Schema{
		Type: s.Type, Types: s.Types, Title: s.Title, Description: s.Description, Enum: s.Enum,
		Minimum: s.Minimum, Maximum: s.Maximum, MinItems: s.MinItems, MaxItems: s.MaxItems,
	}
	for _, part := range s.AnyOf {
		strict, ok := strictly(part)
		if !ok {
			return nil, false
		}
		out.AnyOf = append(out.AnyOf, strict)
	}
	kinds := append(slices.Clone(s.Types), s.Type)
	if slices.Contains(kinds, "array") {
		items, ok := strictly(s.Items)
		if !ok {
			return nil, false
		}
		out.Items = items
	}
	if slices.Contains(kinds, "object") && !strictProperties(s, out) {
		return nil, false
	}
	return out, true
}

func strictProperties(s, out *jsonschema.Schema) bool {
	if len(s.Properties) == 0 {
		return false // an object with any properties
	}
	out.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}} // false
	out.Properties = make(map[string]*jsonschema.Schema, len(s.Properties))
	out.PropertyOrder = s.PropertyOrder
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p, ok := strictly(s.Properties[name])
		if !ok {
			return false
		}
		if !slices.Contains(s.Required, name) {
			p = orNone(p)
		}
		out.Properties[name] = p
		out.Required = append(out.Required, name)
	}
	return true
}

// orNone lets a value be null.
func orNone(s *jsonschema.Schema) *jsonschema.Schema {
	switch {
	case s.AnyOf != nil || s.Enum != nil:
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
	case s.Type != "":
		s.Types, s.Type = []string{s.Type, "null"}, ""
	case !slices.Contains(s.Types, "null"):
		s.Types = append(slices.Clone(s.Types), "null")
	}
	return s
}
