package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

var update = flag.Bool("update", false, "write docs/slipway.schema.json anew")

const schemaFile = "../docs/slipway.schema.json"

// The published schema is the one that the knobs make, with the manual's words.
func TestTheSchemaIsCurrent(t *testing.T) {
	rows := manual(t)
	got, err := Schema(func(key string) string { return rows[key].about })
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(schemaFile)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/slipway.schema.json is not what the knobs make (%v): go test ./config -run Schema -update", err)
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	raw, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("slipway.schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("slipway.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// obeys reports why a file does not, as an editor would find.
func obeys(s *jsonschema.Schema, file string) error {
	var v any
	if err := yaml.Load([]byte(file), &v); err != nil {
		return err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return s.Validate(document)
}

// beyond are the refused files that a schema cannot refuse.
var beyond = map[string]bool{
	"an unknown effort": true, "an effort that is missing": true, "an effort of another runtime": true,
	"a chain in a circle": true, "a pattern that is broken": true,
}

// The schema takes what the parser takes and refuses what it refuses, but for
// what no schema can say.
func TestTheSchemaAgreesWithTheParser(t *testing.T) {
	s := compiled(t)
	for name, c := range refusals {
		if _, err := Parse([]byte(c.file), "f.yml"); err == nil {
			t.Errorf("%s: the parser takes it", name)
		}
		if err := obeys(s, c.file); (err == nil) != beyond[name] {
			t.Errorf("%s: the schema says %v", name, err)
		}
	}
	for name, file := range map[string]string{
		"every key":             everyKey,
		"a chain with blanks":   "models: {coder: ' opus  |claude_code:sonnet@high| haiku '}",
		"a model with signs":    "models: {default: 'open_code:minimax/minimax-m2.5:free'}",
		"the least money":       "limits: {usd_per_build: 0.000001}",
		"the most money":        "limits: {usd_per_build: 1000000}",
		"a ratio of one":        "pipeline: {failure_abort_ratio: 1}",
		"a section with no key": "limits:\nbuild: {label: a label with blanks}\n",
		"a label of 50":         "build: {label: '" + strings.Repeat("ß", 50) + "'}",
		"a template in parts":   "build: {branch: 'a/{slug}/{ticket}-{ticket}'}",
		"no limit of batches":   "pipeline: {max_concurrency: 0}",
	} {
		if _, err := Parse([]byte(file), "f.yml"); err != nil {
			t.Errorf("%s: the parser says %v", name, err)
		}
		if err := obeys(s, file); err != nil {
			t.Errorf("%s: the schema says %v", name, err)
		}
	}
}
