package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// A knob is one key of a configuration: how its value is read, shown and
// handed from one layer to the next. Every key is one knob of one table, so a
// key that is accepted is a key that has a meaning.
type knob[T any] struct {
	key  string                     // dotted, as in limits.usd_per_build
	read func(*T, *yaml.Node) error // from a scalar or a list
	show func(*T) string            // for people
	copy func(to, from *T)
	form form // what a JSON Schema can say of a value
}

// like is the knob with the form of its values.
func (k knob[T]) like(f form) knob[T] {
	k.form = f
	return k
}

// newKnob builds the knob of one field from how its type is read and shown.
func newKnob[T, V any](key string, at func(*T) *V, read func(*yaml.Node) (V, error), show func(V) string) knob[T] {
	return knob[T]{
		key: key,
		read: func(t *T, n *yaml.Node) error {
			v, err := read(n)
			if err == nil {
				*at(t) = v
			}
			return err
		},
		show: func(t *T) string { return show(*at(t)) },
		copy: func(to, from *T) { *at(to) = *at(from) },
	}
}

// words is a knob of text that passes check.
func words[T any](key string, at func(*T) *string, check func(string) error) knob[T] {
	return newKnob(key, at, func(n *yaml.Node) (string, error) {
		v, err := readText(n)
		if err != nil {
			return "", err
		}
		return v, check(v)
	}, func(v string) string { return v }).like(form{Type: "string", Pattern: `\S`})
}

// sequence is a knob of a list of texts that pass check.
func sequence[T any](key string, at func(*T) *[]string, check func(string) error) knob[T] {
	return newKnob(key, at, func(n *yaml.Node) ([]string, error) {
		nodes, ok := listed(n)
		if !ok || len(nodes) == 0 {
			return nil, fmt.Errorf("want a list of at least one, got %s", describe(n))
		}
		var out []string
		for _, item := range nodes {
			v, err := readText(item)
			if err == nil {
				err = check(v)
			}
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	}, func(v []string) string { return strings.Join(v, ", ") })
}

// choice is a knob of one of the words.
func choice[T any](key string, at func(*T) *string, of ...string) knob[T] {
	return words(key, at, oneOf(of...)).like(form{Type: "string", Enum: of})
}

// whole is a knob of an integer between least and most.
func whole[T any](key string, at func(*T) *int, least, most int) knob[T] {
	return newKnob(key, at, func(n *yaml.Node) (int, error) {
		return readInt(n, least, most)
	}, strconv.Itoa).like(between(least, most))
}

// lasting is a knob of a time span, written as a number of units.
func lasting[T any](key string, at func(*T) *time.Duration, unit time.Duration, least, most int) knob[T] {
	return newKnob(key, at, func(n *yaml.Node) (time.Duration, error) {
		v, err := readInt(n, least, most)
		return time.Duration(v) * unit, err
	}, func(v time.Duration) string { return strconv.FormatInt(int64(v/unit), 10) }).like(between(least, most))
}

// switched is a knob that is on or off.
func switched[T any](key string, at func(*T) *bool) knob[T] {
	return newKnob(key, at, func(n *yaml.Node) (bool, error) {
		if err := wantScalar(n, "true or false", "!!bool"); err != nil {
			return false, err
		}
		v, err := strconv.ParseBool(strings.ToLower(n.Value))
		if err != nil {
			return false, fmt.Errorf("want true or false, got %s", n.Value)
		}
		return v, nil
	}, strconv.FormatBool).like(form{Type: "boolean"})
}

// usd is a knob of money.
func usd[T any](key string, at func(*T) *Micros) knob[T] {
	return newKnob(key, at, func(n *yaml.Node) (Micros, error) {
		if err := wantScalar(n, "an amount in US dollars such as 12.50", "!!int", "!!float"); err != nil {
			return 0, err
		}
		return ParseUSD(n.Value)
	}, Micros.String).like(form{Type: "number", Above: number(0), Maximum: number(maxUSD)})
}

// share is a knob of a ratio above 0, at most 1.
func share[T any](key string, at func(*T) *float64) knob[T] {
	return newKnob(key, at, func(n *yaml.Node) (float64, error) {
		const want = "a number above 0 and at most 1"
		if err := wantScalar(n, want, "!!int", "!!float"); err != nil {
			return 0, err
		}
		v, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsNaN(v) || v <= 0 || v > 1 {
			return 0, fmt.Errorf("want %s, got %s", want, n.Value)
		}
		return v, nil
	}, func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }).like(form{Type: "number", Above: number(0), Maximum: number(1)})
}

// kept reads a secret; nothing ever shows it.
func kept[T any](key string, at func(*T) *Secret) knob[T] {
	return newKnob(key, at, readSecret, Secret.String)
}

func readSecret(n *yaml.Node) (Secret, error) {
	if err := wantScalar(n, "text", "!!str"); err != nil {
		return "", redactValue(err)
	}
	if strings.TrimSpace(n.Value) == "" {
		return "", fmt.Errorf("an empty secret protects nothing")
	}
	return Secret(n.Value), nil
}

// redactValue keeps what was wanted and drops what was given.
func redactValue(err error) error {
	want, _, _ := strings.Cut(err.Error(), ", got")
	return fmt.Errorf("%s (in quotes)", want)
}

func readText(n *yaml.Node) (string, error) {
	if err := wantScalar(n, "text", "!!str"); err != nil {
		return "", err
	}
	if strings.TrimSpace(n.Value) == "" {
		return "", fmt.Errorf("empty; leave the key out instead")
	}
	return n.Value, nil
}

func readInt(n *yaml.Node, least, most int) (int, error) {
	want := fmt.Sprintf("a whole number from %d to %d", least, most)
	if err := wantScalar(n, want, "!!int"); err != nil {
		return 0, err
	}
	v, err := strconv.Atoi(n.Value)
	if err != nil || v < least || v > most {
		return 0, fmt.Errorf("want %s, got %s", want, n.Value)
	}
	return v, nil
}

// wantScalar fails unless n is a scalar of one of the tags. A node without a
// tag comes from the environment, where everything is text.
func wantScalar(n *yaml.Node, want string, tags ...string) error {
	if n.Kind == yaml.ScalarNode && (n.Tag == "" || slices.Contains(tags, n.Tag)) {
		return nil
	}
	return fmt.Errorf("want %s, got %s", want, describe(n))
}

// describe says in words what a node is.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias, which is not supported"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!str":
		return "the text " + strconv.Quote(n.Value)
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the truth value " + n.Value
	}
	return strconv.Quote(n.Value)
}

// keysIn lists the keys directly below a section, sorted. The section's name
// ends with its dot; it is empty for the top.
func keysIn[T any](knobs []knob[T], section string) []string {
	found := map[string]bool{}
	for _, k := range knobs {
		if rest, ok := strings.CutPrefix(k.key, section); ok {
			name, _, _ := strings.Cut(rest, ".")
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
