package review

import (
	"strings"
	"testing"
)

func TestLocate(t *testing.T) {
	text := strings.Split("func a() {\n\treturn f(1)\n}\n\nfunc b() {\n\treturn f(1)\n}\n", "\n")
	for name, c := range map[string]struct {
		quote       string
		near        int
		first, last int
	}{
		"the line itself":           {"\treturn f(1)", 2, 2, 2},
		"without indentation":       {"return f(1)", 2, 2, 2},
		"the nearer one":            {"return f(1)", 5, 6, 6},
		"miscounted far":            {"return f(1)", 900, 6, 6},
		"several lines":             {"func b() {\n    return f(1)\n}", 1, 5, 7},
		"with an empty line around": {"\nfunc b() {\n", 1, 5, 5},
		"across an empty line":      {"}\n\nfunc b() {", 1, 3, 5},
		"windows line ends":         {"func b() {\r\n\treturn f(1)\r\n", 1, 5, 6},
		"not there":                 {"return f(2)", 2, 0, 0},
		"a part of a line":          {"return f", 5, 6, 6},
		"a part that is too short":  {"turn f(", 2, 0, 0},
		"parts of two lines":        {"func a()\nreturn f(", 1, 0, 0},
		"longer than the file":      {strings.Repeat("}\n", 20), 1, 0, 0},
		"nothing":                   {"", 2, 0, 0},
		"blanks":                    {" \n\t", 2, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			first, last, ok := locate(text, c.quote, c.near)
			if first != c.first || last != c.last || ok != (c.first > 0) {
				t.Errorf("%d to %d, %v", first, last, ok)
			}
		})
	}
	if _, _, ok := locate(nil, "x", 1); ok {
		t.Error("found in a file that is not there")
	}
}

func TestSymbol(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a Go function":           {"package a\n\nfunc Other() {}\n\nfunc Write(w io.Writer) {\n\tif x {\n\t\there\n", "Write"},
		"a Go method":             {"func (w *Writer) Flush() error {\n\there\n", "Flush"},
		"the declaration itself":  {"func before() {}\n\nfunc here() {\n", "here"},
		"a generic Go type":       {"type List[T any] struct {\n\there T\n", "List"},
		"a Python method":         {"class A:\n    def f(self):\n        pass\n\n    async def g(self):\n        here\n", "g"},
		"after a nested function": {"def f():\n    def g():\n        pass\n    here\n", "f"},
		"Rust":                    {"impl Reader for File {\n    pub(crate) fn read(&self) {\n        here\n", "read"},
		"TypeScript":              {"export default async function load() {\n  here\n", "load"},
		"no declaration":          {"key: value\nhere: 1\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(c.text, "\n")
			if got := symbol(lines, len(lines)-1); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if symbol([]string{"func f() {}"}, 9) != "" || symbol(nil, 0) != "" {
		t.Error("a line that is not there has a symbol")
	}
}
