package app

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// A Diagnosis is one thing that was looked at.
type Diagnosis struct {
	About string `json:"about"`         // what was looked at
	State string `json:"state"`         // ok, warning or problem
	Text  string `json:"text"`          // what was seen
	Fix   string `json:"fix,omitempty"` // what to do about it
}

// The states of a Diagnosis. With a warning builds work, or some do.
const (
	Well    = "ok"
	Warning = "warning"
	Problem = "problem"
)

// Examine looks at this machine: git, how agents are confined, and the runtimes
// that a build would ask.
func Examine(ctx context.Context, conf config.Server, engine *pipeline.Engine) []Diagnosis {
	out := []Diagnosis{{"git", Well, "it is recent enough", ""}}
	if err := repo.CheckVersion(ctx); err != nil {
		out[0] = Diagnosis{"git", Problem, err.Error(), "install git 2.38 or newer"}
	}
	confined := Diagnosis{"sandbox", Well, "agents are confined by " + string(engine.Box.Mode()), ""}
	if engine.Box.Mode() == sandbox.None {
		confined = Diagnosis{"sandbox", Warning, "agents are not confined", "set sandbox: auto, unless there is a sandbox around Slipway"}
	}
	out = append(out, confined)
	rows, err := Models(ctx, conf, engine, engine.Defaults)
	if err != nil {
		return append(out, Diagnosis{"models", Problem, err.Error(), "correct the section models; docs/configuration.md has its keys"})
	}
	seen := map[string]bool{}
	for _, row := range rows {
		for _, t := range row.Targets {
			if seen[t.Runtime] {
				continue
			}
			seen[t.Runtime] = true
			d := Diagnosis{"runtime " + t.Runtime, Well, "it can be run", ""}
			if !t.Runs {
				d.State, d.Text, d.Fix = Problem, t.Problem, "install it or name another under runtime; slipway doctor models shows who needs it"
			}
			out = append(out, d)
		}
	}
	return out
}

// Diagnose looks at the App on GitHub and compares it with its manifest: what it
// may do and hears of, who installed it, and whether its webhooks arrive. The
// limits are the store's, as for every call.
func Diagnose(ctx context.Context, conf config.Server, limits github.Limiter, manifest Manifest, log *slog.Logger) []Diagnosis {
	if conf.GitHub.Unconfigured() {
		return []Diagnosis{{"app", Warning, "no GitHub App is configured", "run slipway serve, and open the link that it prints"}}
	}
	if missing := conf.Missing(); len(missing) > 0 {
		return []Diagnosis{{"app", Problem, "the GitHub App is configured in part", strings.Join(missing, "; ")}}
	}
	key, err := conf.GitHub.Key()
	if err != nil {
		return []Diagnosis{{"app", Problem, err.Error(), "let github.private_key_file name the .pem file that GitHub made"}}
	}
	hub, err := github.New(github.Options{
		AppID: conf.GitHub.AppID, PrivateKey: []byte(key.Reveal()), BaseURL: conf.GitHub.BaseURL, CAFile: conf.GitHub.CAFile, Limits: limits, Log: log,
	})
	if err != nil {
		return []Diagnosis{{"app", Problem, err.Error(), "take the App's id and its .pem file from its settings page, and let github.ca_file name certificates in PEM"}}
	}
	app, err := hub.Registered(ctx)
	if err != nil {
		return []Diagnosis{{"app", Problem, err.Error(), unreached(conf.GitHub.BaseURL, err)}}
	}
	out := []Diagnosis{{"app", Well, fmt.Sprintf("App %d answers for %s", conf.GitHub.AppID, app.Page), ""}}
	out = append(out, granted("app", app, manifest, "change it on the App's settings page")...)
	out = append(out, installations(ctx, conf, hub, manifest)...)
	return append(out, arrivals(ctx, hub))
}

// unreached is what to do where GitHub did not tell us about the App.
func unreached(base string, err error) string {
	at, _ := url.Parse(base) // it was read, so it is an address
	api := strings.HasPrefix(at.Host, "api.") || strings.HasSuffix(at.Path, "/api/v3/")
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return "let github.ca_file name the file of the certificate, in PEM, by which " + at.Host + " is trusted"
	}
	switch {
	case at.Host == "github.com":
		return "leave github.base_url out: the API of github.com is https://api.github.com/"
	case !api && github.NotFound(err):
		return "github.base_url is the address of the API, which on GitHub Enterprise Server is " + at.Scheme + "://" + at.Host + "/api/v3/"
	case github.Refused(err):
		return "let github.app_id and the private key be of the same App, which still exists, and see that the clock is right"
	}
	return "see that github.base_url is right and that this machine reaches " + base
}

var grants = map[string]int{"read": 1, "write": 2, "admin": 3}

// granted compares what an App or an installation has with the manifest.
func granted(about string, have github.Registration, want Manifest, fix string) []Diagnosis {
	var lacks, deaf []string
	for _, name := range slices.Sorted(maps.Keys(want.Permissions)) {
		if level := want.Permissions[name]; grants[have.Permissions[name]] < grants[level] {
			lacks = append(lacks, name+": "+level)
		}
	}
	for _, e := range want.Events {
		if !slices.Contains(have.Events, e) {
			deaf = append(deaf, e)
		}
	}
	var out []Diagnosis
	if len(lacks) > 0 {
		out = append(out, Diagnosis{about, Problem, "permissions are missing: " + strings.Join(lacks, ", "), fix})
	}
	if len(deaf) > 0 {
		out = append(out, Diagnosis{about, Problem, "events are not subscribed to: " + strings.Join(deaf, ", "), fix})
	}
	if grants[have.Permissions["workflows"]] < grants["write"] {
		out = append(out, Diagnosis{
			about, Warning, "a build that changes files in .github/workflows cannot be pushed",
			"add the permission workflows: write if builds are to change workflows",
		})
	}
	return out
}

func installations(ctx context.Context, conf config.Server, hub *github.App, want Manifest) []Diagnosis {
	all, err := hub.Installed(ctx)
	switch {
	case err != nil:
		return []Diagnosis{{"installations", Problem, err.Error(), "run slipway doctor again"}}
	case len(all) == 0:
		return []Diagnosis{{"installations", Problem, "the App is installed nowhere", "install it from its page on GitHub"}}
	}
	var out []Diagnosis
	for _, i := range all {
		about := "installation on " + i.Account
		found := granted(about, i, want, "an owner of "+i.Account+" has to accept the App's permissions at "+i.Page)
		if i.Suspended {
			found = []Diagnosis{{about, Problem, "it is suspended", "an owner of " + i.Account + " can end that at " + i.Page}}
		}
		if len(found) == 0 {
			found = []Diagnosis{{about, Well, "it has every permission and event", ""}}
		}
		out = append(out, found...)
		if !i.Suspended {
			out = append(out, repositories(ctx, conf, hub, i)...)
		}
	}
	return out
}

// arrivals says whether GitHub reaches the webhook, by what became of the last
// ones that it sent.
func arrivals(ctx context.Context, hub *github.App) Diagnosis {
	const about = "webhook"
	sent, err := hub.Deliveries(ctx, time.Now().Add(-24*time.Hour))
	if err != nil {
		return Diagnosis{about, Problem, err.Error(), "run slipway doctor again"}
	}
	if len(sent) == 0 {
		return Diagnosis{about, Warning, "GitHub sent nothing in the last day, so nothing is known", "comment /help on an issue, and look again"}
	}
	last := sent[:min(len(sent), 20)]
	failed := 0
	for _, d := range last {
		if !d.Accepted {
			failed++
		}
	}
	text := fmt.Sprintf("of the last %d webhooks %d arrived", len(last), len(last)-failed)
	const fix = "see that slipway serve runs, that the App's webhook address leads to it, and that github.webhook_secrets has the App's secret"
	switch {
	case !last[0].Accepted:
		return Diagnosis{about, Problem, text + "; the newest did not", fix}
	case failed > 0:
		return Diagnosis{about, Warning, text + "; the newest did, and the rest is asked for again", ""}
	}
	return Diagnosis{about, Well, text, ""}
}
