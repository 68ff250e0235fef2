package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// MaxTasks is how many tasks one request may have.
const MaxTasks = 256

// A Request is what an agent hands to the agent tool: one task, or a list.
type Request struct {
	Tasks          []Assignment
	Single         bool // the form without a list
	MaxConcurrency int  // the agent's own wish; 0 when it has none
}

// An Assignment is a task in an agent's words.
type Assignment struct {
	Description string `json:"description"`   // one line
	Prompt      string `json:"prompt"`        // all that the subagent is told
	Type        string `json:"subagent_type"` // one of the kinds on offer
}

// Describe says in one line what is asked for.
func (r Request) Describe() string {
	if len(r.Tasks) == 1 {
		return r.Tasks[0].Description
	}
	kinds := map[string]int{}
	for _, t := range r.Tasks {
		kinds[t.Type]++
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%d × %s", kinds[kind], kind))
	}
	return fmt.Sprintf("%d subagents: %s", len(r.Tasks), strings.Join(parts, ", "))
}

// ReadRequest reads what an agent handed over: exactly one of a task's fields or
// tasks, and nothing else. Its errors are for the agent: they name the field.
func ReadRequest(input []byte, kinds []string) (Request, error) {
	fields, err := object("the input", input)
	if err != nil {
		return Request{}, err
	}
	list, isList := fields["tasks"]
	delete(fields, "tasks")
	if !isList {
		if len(fields) == 0 {
			return Request{}, errors.New("tasks: missing; give tasks, or description, prompt and subagent_type")
		}
		task, err := readAssignment("", fields, kinds)
		return Request{Tasks: []Assignment{task}, Single: true}, err
	}
	for _, name := range assignmentFields {
		if _, both := fields[name]; both {
			return Request{}, fmt.Errorf("%s: cannot stand beside tasks; put it into a task", name)
		}
	}
	var r Request
	if wish, ok := fields["max_concurrency"]; ok {
		if err := json.Unmarshal(wish, &r.MaxConcurrency); err != nil {
			return Request{}, fmt.Errorf("max_concurrency: want a whole number, got %s", kindOf(wish))
		}
		r.MaxConcurrency = max(r.MaxConcurrency, 1)
		delete(fields, "max_concurrency")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		return Request{}, fmt.Errorf("%s: there is no such field; there are tasks and max_concurrency", name)
	}
	r.Tasks, err = readTasks(list, kinds)
	return r, err
}

func readTasks(list json.RawMessage, kinds []string) ([]Assignment, error) {
	if kindOf(list) != "a list" {
		return nil, fmt.Errorf("tasks: want a list, got %s", kindOf(list))
	}
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, fmt.Errorf("tasks: %w", err)
	}
	if len(items) == 0 || len(items) > MaxTasks {
		return nil, fmt.Errorf("tasks: want 1 to %d, got %d", MaxTasks, len(items))
	}
	tasks := make([]Assignment, len(items))
	for i, item := range items {
		where := fmt.Sprintf("tasks[%d]", i)
		fields, err := object(where, item)
		if err != nil {
			return nil, err
		}
		if tasks[i], err = readAssignment(where+".", fields, kinds); err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

var assignmentFields = []string{"description", "prompt", "subagent_type"}

// readAssignment reads a task; where is what stands before a field's name.
func readAssignment(where string, fields map[string]json.RawMessage, kinds []string) (Assignment, error) {
	values := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(assignmentFields, name) {
			return Assignment{}, fmt.Errorf("%s%s: there is no such field; there are %s", where, name, strings.Join(assignmentFields, ", "))
		}
		var text string
		if kind := kindOf(fields[name]); kind != "a text" || json.Unmarshal(fields[name], &text) != nil {
			return Assignment{}, fmt.Errorf("%s%s: want a text, got %s", where, name, kind)
		}
		values[name] = text
	}
	for _, name := range assignmentFields {
		if strings.TrimSpace(values[name]) == "" {
			return Assignment{}, fmt.Errorf("%s%s: missing or empty", where, name)
		}
	}
	a := Assignment{Description: oneLine(values["description"]), Prompt: values["prompt"], Type: values["subagent_type"]}
	if !slices.Contains(kinds, a.Type) {
		return Assignment{}, fmt.Errorf("%ssubagent_type: there is no %q; there are %s", where, a.Type, strings.Join(kinds, ", "))
	}
	return a, nil
}

// maxDescription bounds a description in bytes.
const maxDescription = 200

// oneLine is a description as it stands in a list.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxDescription {
		text = strings.ToValidUTF8(text[:maxDescription], "") + "…"
	}
	return text
}

func object(where string, text []byte) (map[string]json.RawMessage, error) {
	if kind := kindOf(text); kind != "an object" {
		return nil, fmt.Errorf("%s: want an object, got %s", where, kind)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("%s: want an object, got what is no JSON: %w", where, err)
	}
	return fields, nil
}

// kindOf says what a JSON text is, by how it begins.
func kindOf(text []byte) string {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return "nothing"
	}
	switch text[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}

// RequestSchema is the JSON Schema of a request with these kinds of subagent.
// It has both forms as plain properties, because not every provider takes a
// choice at the top; ReadRequest holds them apart.
func RequestSchema(kinds []string) json.RawMessage {
	text := func(about string) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Description: about} }
	closed := &jsonschema.Schema{Not: &jsonschema.Schema{}} // false: no other field
	kind := text("Which kind of subagent does it.")
	for _, name := range kinds {
		kind.Enum = append(kind.Enum, name)
	}
	task := map[string]*jsonschema.Schema{
		"description":   text("What it is about, in one line."),
		"prompt":        text("The whole task. The subagent knows nothing else of what you know."),
		"subagent_type": kind,
	}
	top := maps.Clone(task)
	least, most := 1, MaxTasks
	top["tasks"] = &jsonschema.Schema{
		Type: "array", MinItems: &least, MaxItems: &most,
		Description: "Several tasks that run at the same time. Give either this or the three fields of one task.",
		Items:       &jsonschema.Schema{Type: "object", Properties: task, Required: assignmentFields, AdditionalProperties: closed},
	}
	top["max_concurrency"] = &jsonschema.Schema{Type: "integer", Description: "How many of tasks may run at once; fewer may be allowed."}
	schema, err := json.Marshal(&jsonschema.Schema{Type: "object", Properties: top, AdditionalProperties: closed})
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return schema
}
