package github

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/go-github/v60/github"
)

// A Registration is the App as GitHub has it, or one of its installations.
type Registration struct {
	ID          int64  // of the installation
	Account     string // that installed it; empty for the App itself
	Page        string // where to change it
	Suspended   bool
	Permissions map[string]string // name → read, write or admin
	Events      []string
}

// Registered reads how the App is set up.
func (a *App) Registered(ctx context.Context) (Registration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	app, _, err := a.self.Apps.Get(ctx, "")
	if err != nil {
		return Registration{}, fmt.Errorf("read the App: %w", err)
	}
	may, err := permissions(app.GetPermissions())
	return Registration{Page: app.GetHTMLURL(), Permissions: may, Events: app.Events}, err
}

// Installed lists where the App is installed, and what each account granted.
func (a *App) Installed(ctx context.Context) ([]Registration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var out []Registration
	page := &github.ListOptions{PerPage: 100}
	for {
		some, resp, err := a.self.Apps.ListInstallations(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list the installations: %w", err)
		}
		for _, i := range some {
			may, err := permissions(i.GetPermissions())
			if err != nil {
				return nil, err
			}
			out = append(out, Registration{
				ID: i.GetID(), Account: i.GetAccount().GetLogin(), Page: i.GetHTMLURL(), Suspended: !i.GetSuspendedAt().IsZero(),
				Permissions: may, Events: i.Events,
			})
		}
		if resp.NextPage == 0 {
			return out, nil
		}
		page.Page = resp.NextPage
	}
}

// Away reports whether GitHub does not answer, or with nothing but failures of its
// own. It asks.
func (a *App) Away(ctx context.Context) bool {
	_, err := a.Registered(ctx)
	return ctx.Err() == nil && uncertain(err)
}

// Refused reports whether GitHub does not take the App's id and key for an App's.
func Refused(err error) bool {
	return status(err) == http.StatusUnauthorized || status(err) == http.StatusNotFound
}

// NotFound reports whether what answered does not know the address.
func NotFound(err error) bool { return status(err) == http.StatusNotFound }

// permissions are the names and levels that the library spreads over its fields.
func permissions(p *github.InstallationPermissions) (map[string]string, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("read the permissions: %w", err)
	}
	out := map[string]string{}
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("read the permissions: %w", err)
	}
	return out, nil
}
