package githubsim

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// What is served and what the judge knows are the same operations.
func TestEveryRouteIsDescribed(t *testing.T) {
	raw, err := os.ReadFile("schema/rest.json")
	if err != nil {
		t.Fatal(err)
	}
	var description struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(raw, &description); err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, r := range routes {
		served[r.method+" "+r.pattern] = true
		if _, ok := description.Paths[r.pattern][strings.ToLower(r.method)]; !ok {
			t.Errorf("%s %s is served, but the judge does not know it", r.method, r.pattern)
		}
	}
	for path, methods := range description.Paths {
		for method := range methods {
			if method != "parameters" && !served[strings.ToUpper(method)+" "+path] {
				t.Errorf("the judge knows %s %s, but it is not served", method, path)
			}
		}
	}
}
