package batch

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

var twoKinds = []string{"security", "tests"}

const oneTask = `"description":"d","prompt":"p","subagent_type":"tests"`

// What is refused names its field.
func TestReadRequestRefuses(t *testing.T) {
	for input, want := range map[string]string{
		``:          "the input: want an object, got nothing",
		`[]`:        "the input: want an object, got a list",
		`"tasks"`:   "the input: want an object, got a text",
		`{"tasks":`: "the input: want an object, got what is no JSON",
		`{}`:        "tasks: missing",
		`{"tasks":[{` + oneTask + `}],"prompt":"p"}`: "prompt: cannot stand beside tasks",
		`{"tasks":[]}`:    "tasks: want 1 to 256, got 0",
		`{"tasks":null}`:  "tasks: want a list, got null",
		`{"tasks":"all"}`: "tasks: want a list, got a text",
		`{"tasks":[{` + oneTask + `}],"hurry":1}`:             "hurry: there is no such field",
		`{"tasks":[{` + oneTask + `}],"max_concurrency":"2"}`: "max_concurrency: want a whole number, got a text",
		`{"tasks":["p"]}`: "tasks[0]: want an object, got a text",
		`{"tasks":[{` + oneTask + `},{"description":"d","prompt":3,"subagent_type":"tests"}]}`: "tasks[1].prompt: want a text, got a number",
		`{"tasks":[{` + oneTask + `,"model":"x"}]}`:                                            "tasks[0].model: there is no such field",
		`{"tasks":[{"description":"d","prompt":" ","subagent_type":"tests"}]}`:                 "tasks[0].prompt: missing or empty",
		`{"description":"d","prompt":"p"}`:                                                     "subagent_type: missing or empty",
		`{"description":true,"prompt":"p","subagent_type":"tests"}`:                            "description: want a text, got true or false",
		`{"description":"d","prompt":"p","subagent_type":"wizard"}`:                            `subagent_type: there is no "wizard"; there are security, tests`,
		`{` + oneTask + `,"extra":{}}`:                                                         "extra: there is no such field",
		`{` + oneTask + `,"max_concurrency":2}`:                                                "max_concurrency: there is no such field",
	} {
		if _, err := ReadRequest([]byte(input), twoKinds); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", input, err, want)
		}
	}
}

func TestReadRequest(t *testing.T) {
	one, err := ReadRequest([]byte(`{"description":" two\n words ","prompt":"p\n","subagent_type":"tests"}`), twoKinds)
	if err != nil || !one.Single || one.Describe() != "two words" || one.Tasks[0] != (Assignment{"two words", "p\n", "tests"}) {
		t.Errorf("%+v, %v", one, err)
	}
	many, err := ReadRequest([]byte(`{"tasks":[{`+oneTask+`},{`+oneTask+`},{"description":"`+strings.Repeat("é", 200)+`","prompt":"p","subagent_type":"security"}],"max_concurrency":-3}`), twoKinds)
	if err != nil || many.Single || len(many.Tasks) != 3 || many.MaxConcurrency != 1 || many.Describe() != "3 subagents: 1 × security, 2 × tests" {
		t.Errorf("%+v, %v", many, err)
	}
	if d := many.Tasks[2].Description; d != strings.Repeat("é", 100)+"…" {
		t.Errorf("a long description is %q", d)
	}
}

// What is accepted fits the schema that agents are given.
func FuzzReadRequest(f *testing.F) {
	f.Add(`{` + oneTask + `}`)
	f.Add(`{"tasks":[{` + oneTask + `}],"max_concurrency":2}`)
	f.Add(`{"tasks":[{}]}`)
	var schema jsonschema.Schema
	if err := json.Unmarshal(RequestSchema(twoKinds), &schema); err != nil {
		f.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, input string) {
		r, err := ReadRequest([]byte(input), twoKinds)
		if err != nil {
			return
		}
		if len(r.Tasks) == 0 || r.Describe() == "" || strings.ContainsAny(r.Describe(), "\n\r") {
			t.Errorf("%q is read as %+v", input, r)
		}
		var value any
		if err := json.Unmarshal([]byte(input), &value); err != nil {
			t.Fatalf("%q: %v", input, err)
		}
		if err := resolved.Validate(value); err != nil {
			t.Errorf("%q: %v", input, err)
		}
	})
}
