package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// A contract is the schema of an output type, ready to check answers.
type contract[Out any] struct {
	schema   json.RawMessage
	root     *jsonschema.Schema
	resolved *jsonschema.Resolved
}

// contracts caches one contract per output type.
var contracts sync.Map // reflect.Type → contract[Out]

func contractOf[Out any]() (contract[Out], error) {
	t := reflect.TypeFor[Out]()
	if known, ok := contracts.Load(t); ok {
		return known.(contract[Out]), nil
	}
	root, err := jsonschema.For[Out](nil)
	if err != nil {
		return contract[Out]{}, fmt.Errorf("schema of %s: %w", t, err)
	}
	relax(root)
	resolved, err := root.Resolve(nil)
	if err != nil {
		return contract[Out]{}, fmt.Errorf("schema of %s: %w", t, err)
	}
	text, err := json.Marshal(root)
	if err != nil {
		return contract[Out]{}, fmt.Errorf("schema of %s: %w", t, err)
	}
	c := contract[Out]{schema: text, root: root, resolved: resolved}
	contracts.Store(t, c)
	return c, nil
}

// relax lets answers carry fields that nobody asked for: they are ignored, not
// worth a repair turn. A list may not be null: normalise makes it empty.
func relax(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	s.AdditionalProperties = nil
	if len(s.Types) == 2 && s.Types[0] == "null" && s.Types[1] == "array" {
		s.Types, s.Type = nil, "array"
	}
	relax(s.Items)
	for _, p := range s.Properties {
		relax(p)
	}
}

// read takes the output of an answer. The problems are words for the agent.
func (c contract[Out]) read(a Answer) (out Out, problems []string) {
	if len(a.Output) == 0 {
		return out, []string{"the answer holds no JSON value; answer with one JSON object that fits the schema"}
	}
	dec := json.NewDecoder(bytes.NewReader(a.Output))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		return out, []string{fmt.Sprintf("the JSON cannot be read: %v", err)}
	}
	value = normalise(c.root, value)
	clean, err := json.Marshal(value)
	if err != nil {
		return out, []string{fmt.Sprintf("the JSON cannot be read: %v", err)}
	}
	var plain any // the validator wants float64, not json.Number
	if err := json.Unmarshal(clean, &plain); err != nil {
		return out, []string{fmt.Sprintf("the JSON cannot be read: %v", err)}
	}
	if err := c.resolved.Validate(plain); err != nil {
		return out, []string{err.Error()}
	}
	if err := json.Unmarshal(clean, &out); err != nil {
		return out, []string{fmt.Sprintf("the JSON does not fit: %v", err)}
	}
	return out, nil
}

// normalise forgives at the door what models often do: one value where a list
// belongs, null for an empty list or an absent field.
func normalise(s *jsonschema.Schema, value any) any {
	if s == nil {
		return value
	}
	if s.Type == "array" {
		list, ok := value.([]any)
		switch {
		case value == nil:
			return []any{}
		case !ok:
			list = []any{value}
		}
		for i := range list {
			list[i] = normalise(s.Items, list[i])
		}
		return list
	}
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for name, p := range s.Properties {
		field, there := object[name]
		switch {
		case there && field == nil && p.Type != "array":
			delete(object, name)
		case there:
			object[name] = normalise(p, field)
		}
	}
	return object
}
