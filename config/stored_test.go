package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestStoredCredentials(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	want := GitHub{AppID: 7, Slug: "my-slipway", PrivateKey: "-----BEGIN\nkey\n-----END\n", WebhookSecrets: []Secret{"s: #3cret"}, BaseURL: "https://ghe.example.com/api/v3/"}
	path, err := StoreGitHub(dir, want)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 600", info, err)
	}
	load := func(env ...string) (Server, error) {
		t.Helper()
		s, err := LoadServer("", append(env, "SLIPWAY_STATE_DIR="+dir))
		if err != nil {
			t.Fatal(err)
		}
		return s, s.ReadStored()
	}
	if s, err := load(); err != nil || !reflect.DeepEqual(s.GitHub, want) {
		t.Errorf("read %+v, %v", s.GitHub, err)
	}
	if s, err := load("SLIPWAY_GITHUB_APP_ID=8"); err != nil || s.GitHub.AppID != 8 || s.GitHub.PrivateKey != "" {
		t.Errorf("beside another App: %+v, %v", s.GitHub, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if s, err := load(); err == nil || !strings.Contains(err.Error(), "can be read by others") || !s.GitHub.Unconfigured() {
		t.Errorf("readable by the group: %+v, %v", s.GitHub, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if s, err := load(); err != nil || !s.GitHub.Unconfigured() {
		t.Errorf("without a file: %+v, %v", s.GitHub, err)
	}
}
