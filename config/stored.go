package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v4"
)

// StoredName is the file in the state directory that holds the credentials of an
// App that the set-up page created, as a server's configuration has them.
const StoredName = "github-app.yml"

// Unconfigured reports whether nobody has given any credential of a GitHub App.
func (g GitHub) Unconfigured() bool {
	return g.AppID == 0 && g.PrivateKey == "" && g.PrivateKeyFile == "" && len(g.WebhookSecrets) == 0
}

// ReadStored takes the App that StoreGitHub left in the state directory, unless
// the configuration names one: parts of two Apps are never mixed. A file that
// others can read is refused.
func (s *Server) ReadStored() error {
	if !s.GitHub.Unconfigured() {
		return nil
	}
	path := filepath.Join(s.StateDir, StoredName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the App's credentials: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("read the App's credentials: %s can be read by others; chmod 600 it, or better give the App a new key and secret", path)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the App's credentials: %w", err)
	}
	return s.readFile(file, path)
}

// stored is that file, as a server's own would say it. It holds secrets.
type stored struct {
	GitHub struct {
		AppID          int64    `yaml:"app_id"`
		Slug           string   `yaml:"slug"`
		PrivateKey     string   `yaml:"private_key"`
		WebhookSecrets []string `yaml:"webhook_secrets"`
		BaseURL        string   `yaml:"base_url"`
	} `yaml:"github"`
}

// StoreGitHub writes the credentials of an App into the state directory, for
// nobody else to read, and whole or not at all. It returns the file's path.
func StoreGitHub(stateDir string, g GitHub) (path string, err error) {
	var secrets []string
	for _, s := range g.WebhookSecrets {
		secrets = append(secrets, s.Reveal())
	}
	var file stored
	file.GitHub.AppID, file.GitHub.Slug, file.GitHub.BaseURL = g.AppID, g.Slug, g.BaseURL
	file.GitHub.PrivateKey, file.GitHub.WebhookSecrets = g.PrivateKey.Reveal(), secrets
	raw, err := yaml.Marshal(file)
	if err != nil {
		return "", fmt.Errorf("encode the App's credentials: %w", err)
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return "", fmt.Errorf("store the App's credentials: %w", err)
	}
	f, err := os.CreateTemp(stateDir, ".new-*") // with mode 0600
	if err != nil {
		return "", fmt.Errorf("store the App's credentials: %w", err)
	}
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	path = filepath.Join(stateDir, StoredName)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("store the App's credentials: %w", err), os.Remove(f.Name()))
	}
	return path, nil
}
