package config

import (
	"os"
	"regexp"
	"testing"
)

// A row is one of the manual's, of one key.
type row struct{ value, about string }

func manual(t *testing.T) map[string]row {
	t.Helper()
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]row{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| (?:`([^`]*)`|–) \\| ([^|]+) \\|$").FindAllSubmatch(page, -1) {
		key := string(m[1])
		if _, twice := rows[key]; twice {
			t.Errorf("%s has two rows", key)
		}
		rows[key] = row{string(m[2]), string(m[3])}
	}
	return rows
}

// TestEveryKeyIsDocumented compares the tables of the manual with the knobs:
// each key has one row, no row is of a key that is gone, each default is the
// real one.
func TestEveryKeyIsDocumented(t *testing.T) {
	rows := manual(t)
	server, err := LoadServer("", []string{"XDG_STATE_HOME=/x"})
	if err != nil {
		t.Fatal(err)
	}
	server.StateDir = "$XDG_STATE_HOME/slipway"
	defaults := Defaults()
	want := map[string]string{}
	for _, k := range serverKnobs {
		want[k.key] = k.show(&server)
	}
	for _, unset := range []string{"redis_url", "github.app_id", "github.private_key", "github.webhook_secrets"} {
		want[unset] = "" // shown as 0 or as hidden
	}
	for _, k := range repoKnobs {
		want[k.key] = k.show(&defaults)
	}
	for key, value := range want {
		if row, ok := rows[key]; !ok {
			t.Errorf("%s has no row in docs/configuration.md", key)
		} else if row.value != value {
			t.Errorf("the default of %s is %q, and %q in docs/configuration.md", key, value, row.value)
		}
		delete(rows, key)
	}
	for key := range rows {
		t.Errorf("docs/configuration.md has a row for %s, which is no key", key)
	}
}
