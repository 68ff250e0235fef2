package config

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A Price is what a model costs, in micro-dollars per million tokens.
type Price struct {
	Input      Micros // 0 is free
	Output     Micros // 0 is free
	CacheRead  Micros // 0: as Input
	CacheWrite Micros // 0: as Input
}

// Prices are the prices of models, by their name.
type Prices map[string]Price

// pricesKey is the section of prices. It is the server's alone: a repository
// that says what its models cost could make its builds look free to the limits
// of the installation, which pays for them.
const pricesKey = "prices"

// refusePrices answers for the section where it does not belong.
func refusePrices(key string, n *yaml.Node) ([]Problem, bool) {
	if key != pricesKey {
		return nil, false
	}
	return []Problem{{Line: n.Line, Key: key, Text: "prices stand at the top of the server's own file, and nowhere else: a repository could make its builds look free"}}, true
}

var priceKnobs = []knob[Price]{
	priced("input", func(p *Price) *Micros { return &p.Input }, readPrice),
	priced("output", func(p *Price) *Micros { return &p.Output }, readPrice),
	priced("cache_read", func(p *Price) *Micros { return &p.CacheRead }, readPaid),
	priced("cache_write", func(p *Price) *Micros { return &p.CacheWrite }, readPaid),
}

func priced(key string, at func(*Price) *Micros, read func(*yaml.Node) (Micros, error)) knob[Price] {
	return newKnob(key, at, read, Micros.String)
}

// maxPrice is more than any model costs: a slip, most likely of the unit.
const maxPrice = 10_000 * 1_000_000

// readPrice reads US dollars per million tokens.
func readPrice(n *yaml.Node) (Micros, error) {
	const want = "US dollars per million tokens such as 2.50, at most 10000"
	if err := wantScalar(n, want, "!!int", "!!float"); err != nil {
		return 0, err
	}
	if zero, ok := new(big.Rat).SetString(n.Value); ok && len(n.Value) < 20 && zero.Sign() == 0 {
		return 0, nil
	}
	v, err := ParseUSD(n.Value)
	if err != nil || v > maxPrice {
		return 0, fmt.Errorf("want %s, got %s", want, n.Value)
	}
	return v, nil
}

// readPaid is readPrice for what has a price of its own or none at all.
func readPaid(n *yaml.Node) (Micros, error) {
	v, err := readPrice(n)
	if err == nil && v == 0 {
		return 0, errors.New("want more than 0; leave it out where it costs as much as input")
	}
	return v, err
}

// readPrices reads the section of prices. The error of a mapping is an *Error
// with every problem.
func readPrices(n *yaml.Node) (Prices, error) {
	if n.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("want a mapping from models to their prices, such as my-model: {input: 2.50, output: 10}, got %s", describe(n))
	}
	out := Prices{}
	var problems []Problem
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		at := pricesKey + "." + name.Value
		if _, twice := out[name.Value]; twice {
			problems = append(problems, Problem{Line: name.Line, Key: at, Text: "given twice"})
			continue
		}
		price, wrong := readModelPrice(at, name, value)
		out[name.Value] = price
		problems = append(problems, wrong...)
	}
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	return out, nil
}

// readModelPrice reads one entry of prices, whose key is at.
func readModelPrice(at string, name, value *yaml.Node) (p Price, problems []Problem) {
	if name.Kind != yaml.ScalarNode || name.Tag != "!!str" || strings.TrimSpace(name.Value) == "" {
		return p, []Problem{{Line: name.Line, Key: pricesKey, Text: "want the name of a model, got " + describe(name)}}
	}
	in := reader[Price]{knobs: priceKnobs, into: &p, origins: map[string]string{}}
	in.section("", value)
	for _, problem := range in.problems {
		problem.Key = strings.TrimSuffix(at+"."+problem.Key, ".")
		problems = append(problems, problem)
	}
	for _, key := range []string{"input", "output"} {
		if _, given := in.origins[key]; !given && len(problems) == 0 {
			problems = append(problems, Problem{Line: name.Line, Key: at, Text: key + " is missing"})
		}
	}
	return p, problems
}

// String lists the prices for people.
func (p Prices) String() string {
	var out []string
	for _, model := range slices.Sorted(maps.Keys(p)) {
		out = append(out, fmt.Sprintf("%s: %s in, %s out", model, p[model].Input, p[model].Output))
	}
	return strings.Join(out, "; ")
}
