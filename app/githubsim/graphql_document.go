package githubsim

import (
	"fmt"
	"strconv"
	"strings"
	"text/scanner"
)

// A graphDocument is one operation of GraphQL. There are no fragments in it, no
// directives and no aliases: they are refused like what is no GraphQL at all.
type graphDocument struct {
	kind   string            // query or mutation
	vars   map[string]string // types of the variables, by name without the dollar
	fields []graphField
}

// A graphField is one selected field.
type graphField struct {
	name   string
	args   map[string]any // string, int, graphVar, or map[string]any of these
	fields []graphField   // nil: a scalar
	at     graphPlace
}

// A graphVar is an argument whose value comes beside the document.
type graphVar string

type graphPlace struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

// graphParser reads a document by recursive descent; the first error ends it.
type graphParser struct {
	scanner.Scanner
	token rune
	err   *graphError
}

func parseGraph(text string) (graphDocument, *graphError) {
	p := &graphParser{}
	p.Init(strings.NewReader(text))
	p.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanStrings
	p.Whitespace = scanner.GoWhitespace | 1<<','
	p.Error = func(*scanner.Scanner, string) {} // what cannot be read is no token that is expected
	p.next()
	doc := p.document()
	return doc, p.err
}

func (p *graphParser) next() { p.token = p.Scan() }

func (p *graphParser) place() graphPlace { return graphPlace{p.Line, p.Column} }

func (p *graphParser) fail(expected string) {
	if p.err == nil {
		at := p.place()
		p.err = &graphError{
			Message:   fmt.Sprintf("Expected %s, actual: %s (%q) at [%d, %d]", expected, scanner.TokenString(p.token), p.TokenText(), at.Line, at.Column),
			Locations: []graphPlace{at},
		}
	}
}

// take reads one punctuation mark.
func (p *graphParser) take(mark rune) {
	if p.token != mark {
		p.fail(fmt.Sprintf("%q", mark))
		return
	}
	p.next()
}

func (p *graphParser) name() string {
	if p.token != scanner.Ident {
		p.fail("NAME")
		return ""
	}
	text := p.TokenText()
	p.next()
	return text
}

func (p *graphParser) document() graphDocument {
	doc := graphDocument{kind: "query", vars: map[string]string{}}
	if p.token != '{' {
		if doc.kind = p.name(); doc.kind != "query" && doc.kind != "mutation" {
			p.fail("query or mutation")
		}
		if p.token == scanner.Ident {
			p.next() // the operation's own name
		}
	}
	if p.token == '(' {
		p.next()
		for p.err == nil && p.token != ')' {
			p.take('$')
			name := p.name()
			p.take(':')
			doc.vars[name] = p.name()
			if p.token == '!' {
				doc.vars[name] += "!"
				p.next()
			}
		}
		p.take(')')
	}
	doc.fields = p.selection()
	if p.err == nil && p.token != scanner.EOF {
		p.fail("the end of the document")
	}
	return doc
}

func (p *graphParser) selection() []graphField {
	p.take('{')
	fields := []graphField{}
	for p.err == nil && p.token != '}' {
		f := graphField{at: p.place(), name: p.name(), args: map[string]any{}}
		if p.token == '(' {
			f.args = p.pairs('(', ')')
		}
		if p.token == '{' {
			f.fields = p.selection()
		}
		fields = append(fields, f)
	}
	if len(fields) == 0 {
		p.fail("NAME")
	}
	p.take('}')
	return fields
}

// pairs are arguments, or the fields of an input object.
func (p *graphParser) pairs(open, end rune) map[string]any {
	all := map[string]any{}
	p.take(open)
	for p.err == nil && p.token != end {
		name := p.name()
		p.take(':')
		all[name] = p.value()
	}
	p.take(end)
	return all
}

func (p *graphParser) value() any {
	text := p.TokenText()
	switch p.token {
	case '$':
		p.next()
		return graphVar(p.name())
	case '{':
		return p.pairs('{', '}')
	case scanner.Int:
		p.next()
		n, err := strconv.Atoi(text)
		if err != nil {
			p.fail("INT")
		}
		return n
	case scanner.String:
		p.next()
		s, err := strconv.Unquote(text)
		if err != nil {
			p.fail("STRING")
		}
		return s
	case scanner.Ident:
		if text == "null" {
			p.next()
			return nil
		}
	}
	p.fail("a value")
	return nil
}
