package handlers_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"go.yaml.in/yaml/v4"
)

// The manifest asks for every event that is handled, unless every App gets it,
// and for no permission beyond those that the product names.
func TestTheManifestAsksForWhatIsHandled(t *testing.T) {
	raw, err := os.ReadFile("../app.yml")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Permissions map[string]string `yaml:"default_permissions"`
		Events      []string          `yaml:"default_events"`
	}
	if err := yaml.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	events := newWorld(t).h.Events()
	if len(events) == 0 {
		t.Fatal("no event is handled")
	}
	unasked := []string{"installation", "installation_repositories"}
	for _, e := range events {
		if slices.Contains(unasked, e) == slices.Contains(m.Events, e) {
			t.Errorf("%s is handled; asked for: %t", e, slices.Contains(m.Events, e))
		}
	}
	want := map[string]string{
		"metadata": "read", "contents": "write", "issues": "write", "pull_requests": "write",
		"checks": "write", "actions": "read", "statuses": "read",
	}
	if !maps.Equal(m.Permissions, want) {
		t.Errorf("permissions %v, want %v", m.Permissions, want)
	}
}
