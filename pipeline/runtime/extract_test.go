package runtime_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

func TestLastJSON(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"alone", ` {"a": 1} `, `{"a": 1}`},
		{"a scalar alone", ` "yes" `, `"yes"`},
		{"after prose", `Here you are: {"a":1}.`, `{"a":1}`},
		{"in a fence", "Done.\n```json\n{\"a\": [1, 2]}\n```\nBye.", `{"a": [1, 2]}`},
		{"the last of two", `{"a":1} no, {"a":2}`, `{"a":2}`},
		{"an outer value, not the inner one", `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{"braces in prose", `use {x} and [see below]: {"a":1}`, `{"a":1}`},
		{"braces in a string", `{"code":"func() { return [1]"}`, `{"code":"func() { return [1]"}`},
		{"an array", `these: ["a","b"]`, `["a","b"]`},
		{"escaped quotes", `{"a":"say \"hi\" {"}`, `{"a":"say \"hi\" {"}`},
		{"none", `nothing to see`, ``},
		{"empty", ``, ``},
		{"half of one", `{"answer":4`, ``},
		{"half of one with a whole one inside", `{"outer":{"a":1},"more":`, ``},
		{"half of one after a whole one", `{"a":1} then {"a":`, ``},
		{"not JSON but close", `{'a': 1}`, ``},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, ok := runtime.LastJSON(row.text)
			if string(got) != row.want || ok != (row.want != "") {
				t.Errorf("LastJSON = %s, %v; want %s", got, ok, row.want)
			}
		})
	}
}

func TestLastJSONIsFastOnHostileText(t *testing.T) {
	for name, text := range map[string]string{
		"open brackets":       strings.Repeat("[", 4<<20),
		"nested and broken":   strings.Repeat(`[1,`, 1<<20) + "x",
		"quotes and brackets": strings.Repeat(`["`, 1<<20),
		"objects in objects":  strings.Repeat(`{"a":`, 1<<20) + "!",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			if got, ok := runtime.LastJSON(text); ok {
				t.Errorf("LastJSON found %.40s", got)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func FuzzLastJSON(f *testing.F) {
	f.Add("text {\"a\":1} ``` [2")
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := runtime.LastJSON(text)
		if ok != (got != nil) || (ok && (!json.Valid(got) || !strings.Contains(text, string(got)))) {
			t.Errorf("LastJSON(%q) = %q, %v", text, got, ok)
		}
	})
}
