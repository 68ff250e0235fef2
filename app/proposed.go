package app

import (
	"context"
	"errors"
	"strings"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

// proposed judges the configuration that a pull request wants. One that takes a
// file away wants the layers below.
func (a *App) proposed(ctx context.Context, r forge.Repo, pull int, sha string) ([]handlers.Proposal, error) {
	hub := a.hub.ForRepo(r, pull)
	defer hub.Close(context.WithoutCancel(ctx))
	var out []handlers.Proposal
	for _, file := range configFiles(r) {
		if pull != 0 {
			if changed, err := hub.Changes(ctx, pull, file); err != nil {
				return nil, err
			} else if !changed {
				continue
			}
		}
		p, err := a.judge(ctx, hub, r, file, sha)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// configFiles are those of a repository that configure anything.
func configFiles(r forge.Repo) []string {
	if strings.EqualFold(r.Name, pipeline.OwnersRepo) {
		return []string{pipeline.ConfigFile, pipeline.OwnersFile}
	}
	return []string{pipeline.ConfigFile}
}

// judge reads one file at the commit together with what lies below it.
func (a *App) judge(ctx context.Context, hub *github.Repository, r forge.Repo, file, sha string) (p handlers.Proposal, err error) {
	p.File = file
	text, err := fileOrNone(ctx, hub, file, sha)
	if err != nil {
		return p, err
	}
	if _, err = config.Parse(text, file); errors.As(err, &p.Wrong) {
		return p, nil
	}
	files := pipeline.Files{Owner: r.Owner}
	if file == pipeline.OwnersFile {
		files.Owners = text
	} else {
		files.Own = text
		if files.Owners, err = hub.OwnersFile(ctx); err != nil {
			return p, err
		}
	}
	_, err = a.engine.Layered(files)
	if errors.As(err, &p.Wrong) {
		p.Elsewhere = p.Wrong.Origin == pipeline.OwnersOrigin(r.Owner)
		return p, nil
	}
	return p, err
}
