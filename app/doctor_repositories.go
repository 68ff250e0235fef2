package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

// mostRepositories of an installation are looked at.
const mostRepositories = 20

// repositories looks at what would keep builds in an installation's
// repositories from being published.
func repositories(ctx context.Context, conf config.Server, hub *github.App, i github.Registration) []Diagnosis {
	about := "repositories of " + i.Account
	all, n, err := hub.Repositories(ctx, i.ID)
	switch {
	case err != nil:
		return []Diagnosis{{about, Problem, err.Error(), "run slipway doctor again"}}
	case n == 0:
		return []Diagnosis{{about, Problem, "the App reaches none", "choose repositories at " + i.Page}}
	}
	var out []Diagnosis
	for _, r := range all[:min(len(all), mostRepositories)] {
		out = append(out, repository(ctx, conf, hub, r)...)
	}
	if left := n - mostRepositories; left > 0 {
		out = append(out, Diagnosis{about, Warning, fmt.Sprintf("%d more were not looked at", left), "read their rules under Settings, Rules"})
	}
	return out
}

// repository looks at one. What the App may not read is told under its
// permissions, and here that it was not seen.
func repository(ctx context.Context, conf config.Server, app *github.App, r forge.Repo) (out []Diagnosis) {
	about := "repository " + r.String()
	hub := app.ForRepo(r, 0)
	defer hub.Close(context.WithoutCancel(ctx))
	add := func(state, text, fix string) { out = append(out, Diagnosis{about, state, text, fix}) }
	unseen := func(what string, err error) {
		add(Warning, what+" could not be looked at: "+err.Error(), "see that the installation has every permission")
	}

	layered, err := configuration(ctx, conf, hub, r)
	wrong, broken := errors.AsType[*config.Error](err)
	switch {
	case broken:
		add(Problem, "its configuration stops every build: "+wrong.Error(), "mend it; docs/configuration.md has the keys")
		layered = conf.Repo.Over(config.Defaults())
	case err != nil:
		unseen("its configuration", err)
		return out
	}
	branch := strings.NewReplacer("{ticket}", "1", "{slug}", "work").Replace(layered.Build.Branch)
	bars, err := hub.Bars(ctx, branch)
	if err != nil {
		unseen("its rules", err)
	}
	for _, b := range bars {
		add(Problem, fmt.Sprintf("a ruleset of %s (%s) wants %s, so that %s cannot be pushed, unless it exempts the App, which cannot be seen", b.Source, b.Rule, b.Wants, branch),
			"let the ruleset not target "+pattern(layered.Build.Branch)+", or put the App on its bypass list: Settings of "+b.Source+", Rules; or set build.branch to a name that it lets pass")
	}
	refused, err := hub.RefusedDrafts(ctx)
	switch {
	case err != nil:
		unseen("its pull requests", err)
	case refused:
		add(Warning, "it takes no draft pull requests: builds open normal ones, with the failing check slipway/draft", "require that check before merging, or choose a plan of GitHub that has drafts")
	}
	rivals, err := hub.Rivals(ctx, func(body string) bool { _, ok, _ := command.Parse(body, conf.Chat.Prefix); return ok })
	if err != nil {
		unseen("its newest threads", err)
	}
	for _, login := range unique(rivals) {
		add(Warning, login+" answered one of our commands, too, on one of the newest threads", `let chat.prefix be "/slipway ", or turn its command off`)
	}
	if len(out) == 0 {
		add(Well, "no rule keeps "+branch+" from being pushed, and no other bot was seen to answer our commands", "")
	}
	return out
}

// configuration is what builds of the repository go by.
func configuration(ctx context.Context, conf config.Server, hub *github.Repository, r forge.Repo) (config.Repo, error) {
	files, err := filesOf(ctx, hub, r)
	if err != nil {
		return config.Repo{}, err
	}
	return (&pipeline.Engine{Defaults: conf.Repo.Over(config.Defaults())}).Layered(files)
}

// pattern is what a template's branches have in common, as rulesets write it.
func pattern(template string) string {
	head, _, _ := strings.Cut(template, "{")
	return head + "*"
}

func unique(words []string) []string {
	set := map[string]bool{}
	for _, w := range words {
		set[w] = true
	}
	return slices.Sorted(maps.Keys(set))
}
