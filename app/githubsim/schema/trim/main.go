// Command trim cuts GitHub's OpenAPI description and webhook schemas down to the
// operations and events that package schema judges, and packs the published
// examples of webhooks.
//
// It reads an installed copy of the npm packages @octokit/openapi (23) and
// @octokit/openapi-webhooks (12), which carry GitHub's own files, and of
// @octokit/webhooks-examples (7):
//
//	go run ./app/githubsim/schema/trim -from node_modules -to app/githubsim/schema
package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// keep lists what survives: "GET /path" for operations, "event name" for webhooks.
//
//go:embed keep.txt
var keep string

func main() {
	from := flag.String("from", "node_modules", "directory that holds the npm packages")
	to := flag.String("to", ".", "directory to write to")
	flag.Parse()
	if err := run(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "trim:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	operations, events := wanted(keep)
	source := func(pkg string) string {
		return filepath.Join(from, "@octokit", pkg, "generated", "api.github.com.json")
	}
	rest, err := read(source("openapi"))
	if err != nil {
		return err
	}
	if rest.Paths, err = choose(rest.Paths, operations); err != nil {
		return err
	}
	if err := write(filepath.Join(to, "rest.json"), rest); err != nil {
		return err
	}
	hooks, err := read(source("openapi-webhooks"))
	if err != nil {
		return err
	}
	if hooks.Webhooks, err = choose(hooks.Webhooks, events); err != nil {
		return err
	}
	if err := write(filepath.Join(to, "webhooks.json"), hooks); err != nil {
		return err
	}
	return pack(filepath.Join(from, "@octokit", "webhooks-examples", "api.github.com", "index.json"), filepath.Join(to, "examples.json.gz"))
}

// pack compresses a JSON file without its white space. The result depends on
// nothing but the file.
func pack(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read the examples: %w", err)
	}
	var plain, out bytes.Buffer
	if err := json.Compact(&plain, raw); err != nil {
		return fmt.Errorf("parse the examples: %w", err)
	}
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(plain.Bytes()); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}

// A description is the part of an OpenAPI document that is kept. Its leaves
// stay untyped: trim only walks them.
type description struct {
	OpenAPI    string                    `json:"openapi"`
	Info       json.RawMessage           `json:"info"`
	Servers    json.RawMessage           `json:"servers,omitempty"`
	Paths      map[string]members        `json:"paths,omitempty"`
	Webhooks   map[string]members        `json:"webhooks,omitempty"`
	Components map[string]map[string]any `json:"components"`
}

// members are the named parts of a JSON object.
type members map[string]any

// wanted reads the list: methods by path, and methods (always post) by event.
func wanted(list string) (operations, events map[string][]string) {
	operations, events = map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(list) {
		kind, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !ok || strings.HasPrefix(kind, "#"):
		case kind == "event":
			events[name] = []string{"post"}
		default:
			operations[name] = append(operations[name], strings.ToLower(kind))
		}
	}
	return operations, events
}

func read(path string) (*description, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read GitHub's description: %w", err)
	}
	var d description
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return &d, nil
}

func choose(all map[string]members, names map[string][]string) (map[string]members, error) {
	chosen := map[string]members{}
	for name, methods := range names {
		chosen[name] = members{}
		if shared, ok := all[name]["parameters"]; ok {
			chosen[name]["parameters"] = shared
		}
		for _, method := range methods {
			operation, ok := all[name][method]
			if !ok {
				return nil, fmt.Errorf("the description has no %s %s", method, name)
			}
			chosen[name][method] = operation
		}
	}
	return chosen, nil
}

// write drops prose and examples, keeps the components that are still
// referred to, and writes the rest.
func write(path string, d *description) error {
	for _, group := range []map[string]members{d.Paths, d.Webhooks} {
		for _, item := range group {
			prune(map[string]any(item))
		}
	}
	kept := map[string]map[string]any{}
	var visit func(node any)
	visit = func(node any) {
		switch node := node.(type) {
		case []any:
			for _, child := range node {
				visit(child)
			}
		case map[string]any:
			if ref, ok := node["$ref"].(string); ok {
				parts := strings.Split(strings.TrimPrefix(ref, "#/components/"), "/")
				if len(parts) == 2 && kept[parts[0]][parts[1]] == nil {
					if kept[parts[0]] == nil {
						kept[parts[0]] = map[string]any{}
					}
					target := d.Components[parts[0]][parts[1]]
					prune(target)
					kept[parts[0]][parts[1]] = target
					visit(target)
				}
			}
			for _, child := range node {
				visit(child)
			}
		}
	}
	for _, group := range []map[string]members{d.Paths, d.Webhooks} {
		for _, item := range group {
			visit(map[string]any(item))
		}
	}
	d.Components = kept
	d.Info = json.RawMessage(`{"title":"GitHub, trimmed","version":"1.1.4"}`)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(d); err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// prose are the keywords that judge nothing. A property may have such a name
// too: properties themselves are not pruned, only what describes them.
var prose = []string{"example", "examples", "externalDocs", "summary", "x-github", "x-githubEnterpriseOnly", "x-github-breaking-changes", "x-multi-segment"}

func prune(node any) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			prune(child)
		}
	case map[string]any:
		for _, word := range prose {
			delete(node, word)
		}
		// A response must keep its description; elsewhere it is prose.
		if _, isText := node["description"].(string); isText {
			if isResponse(node) {
				node["description"] = ""
			} else {
				delete(node, "description")
			}
		}
		if all, ok := node["allOf"].([]any); ok && titled(all, "Simple User", "Enterprise") {
			// One operation asks for an account that is both at once; the
			// schema of the same thing elsewhere says either.
			node["anyOf"] = all
			delete(node, "allOf")
		}
		for name, child := range node {
			if name == "properties" {
				if properties, ok := child.(map[string]any); ok {
					for _, property := range properties {
						prune(property)
					}
					continue
				}
			}
			prune(child)
		}
	}
}

// titled tells whether schemas have just these titles.
func titled(all []any, titles ...string) bool {
	return slices.EqualFunc(all, titles, func(schema any, title string) bool {
		fields, ok := schema.(map[string]any)
		return ok && fields["title"] == title
	})
}

// isResponse tells a response object from a schema, which has a type, a
// reference or a combination.
func isResponse(node map[string]any) bool {
	if _, named := node["name"]; named {
		return false
	}
	for _, word := range []string{"type", "$ref", "anyOf", "oneOf", "allOf", "properties", "enum", "schema", "operationId"} {
		if _, ok := node[word]; ok {
			return false
		}
	}
	return true
}
