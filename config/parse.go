package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// An Error is everything that is wrong with one configuration, for the person
// who wrote it.
type Error struct {
	Origin   string // the file, as that person knows it
	Problems []Problem
}

// A Problem is one mistake.
type Problem struct {
	Line int    // from 1; 0 when it is in no line
	Key  string // dotted; empty when it concerns the whole file
	Text string // what is wanted, and what was found
}

// Error lists the problems, one on a line, as origin:line: key: text.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = e.Origin
		if p.Line > 0 {
			lines[i] += ":" + strconv.Itoa(p.Line)
		}
		if p.Key != "" {
			lines[i] += ": " + p.Key
		}
		lines[i] += ": " + p.Text
	}
	return strings.Join(lines, "\n")
}

// A reader reads one file into a T by a table of knobs and notes what it set.
type reader[T any] struct {
	knobs    []knob[T]
	into     *T
	origin   string
	origins  map[string]string
	problems []Problem
	// other takes a whole section that has a reader of its own, and reports
	// whether it did; may be nil.
	other func(key string, n *yaml.Node) ([]Problem, bool)
}

// read reads the file; an empty file sets nothing.
func (r *reader[T]) read(file []byte) error {
	if len(strings.TrimSpace(string(file))) == 0 {
		return nil
	}
	var doc yaml.Node
	if err := yaml.Load(file, &doc); err != nil {
		if strings.Contains(err.Error(), "no documents in stream") { // only comments
			return nil
		}
		p := Problem{Text: "not one YAML document: " + err.Error()}
		if at, ok := errors.AsType[*yaml.LoadError](err); ok {
			p.Line, p.Text = at.Mark.Line, "not YAML: "+at.Message
		}
		return &Error{Origin: r.origin, Problems: []Problem{p}}
	}
	if len(doc.Content) > 0 {
		r.section("", doc.Content[0])
	}
	if len(r.problems) > 0 {
		return &Error{Origin: r.origin, Problems: r.problems}
	}
	return nil
}

// section reads the mapping n, whose keys all start with prefix.
func (r *reader[T]) section(prefix string, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // a section without keys
	}
	if n.Kind != yaml.MappingNode {
		r.problem(n.Line, strings.TrimSuffix(prefix, "."), "want a mapping with the keys "+strings.Join(keysIn(r.knobs, prefix), ", ")+", got "+describe(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		key := prefix + name.Value
		switch {
		case name.Kind != yaml.ScalarNode:
			r.problem(name.Line, "", "want a key, got "+describe(name))
		case seen[key]:
			r.problem(name.Line, key, "given twice")
		default:
			seen[key] = true
			r.entry(prefix, key, name, value)
		}
	}
}

func (r *reader[T]) entry(prefix, key string, name, value *yaml.Node) {
	if r.other != nil {
		if problems, mine := r.other(key, value); mine {
			r.problems = append(r.problems, problems...)
			return
		}
	}
	isSection := false
	for _, k := range r.knobs {
		if k.key == key {
			err := k.read(r.into, value)
			if list, ok := errors.AsType[*Error](err); ok {
				r.problems = append(r.problems, list.Problems...)
				return
			}
			if err != nil {
				r.problem(value.Line, key, err.Error())
				return
			}
			r.origins[key] = r.origin
			return
		}
		isSection = isSection || strings.HasPrefix(k.key, key+".")
	}
	if isSection {
		r.section(key+".", value)
		return
	}
	text := "unknown key; valid here: " + strings.Join(keysIn(r.knobs, prefix), ", ")
	for _, k := range r.knobs {
		if strings.HasSuffix(k.key, "."+name.Value) {
			text = fmt.Sprintf("unknown key here; it belongs at %s", k.key)
		}
	}
	r.problem(name.Line, key, text)
}

func (r *reader[T]) problem(line int, key, text string) {
	r.problems = append(r.problems, Problem{Line: line, Key: key, Text: text})
}
