package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// plan runs the planning chain and keeps its artefacts.
func (b *build) plan(ctx context.Context) error {
	r := b.Request
	goal := plan.Goal{
		Title: r.title(), Body: r.Ticket.Body, Text: r.Text, Answers: b.fold.answered(), Revisions: b.fold.revisions(),
	}
	if most := b.conf.Pipeline.MaxPlanRevisions; len(goal.Revisions) > most {
		goal.Revisions = goal.Revisions[:most]
	}
	key := keyPlan
	if n := len(goal.Revisions); n > 0 {
		key = keySettled(keyRevision(n))
	}
	if b.fold.hasPlanAt(key) {
		return nil
	}
	if r.Ticket.Number == 0 {
		goal.Body = r.Goal
	}
	var made plan.Result
	var err error
	if r.planned() {
		made, err = r.given()
	} else {
		made, err = plan.Make(ctx, b.crew, goal, plan.Options{
			Key: b.fold.key("plan"), MaxReviewIterations: b.conf.Pipeline.MaxReviewIterations,
			Work: b.site.Open("plan", b.fold.pinned().BaseSHA), Fast: r.Fast, MaxTasks: b.conf.Pipeline.MaxTasks,
		})
	}
	if err != nil {
		return err
	}
	_, err = step.Effect(ctx, b.journal, b.fold.key(key), func(context.Context) (plan.Result, error) {
		return made, b.keepPlan(made)
	})
	return err
}

// keepPlan writes the plan where people can read it.
func (b *build) keepPlan(p plan.Result) error {
	files := map[string]string{"prd.md": p.PRD.Markdown(), "architecture.md": p.Architecture.Markdown()}
	for _, is := range p.Issues {
		files["issues/issue-"+is.Slug()+".md"] = plan.IssueMarkdown(is)
	}
	for name, text := range files {
		if err := b.artefact(filepath.Join("plan", name), []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// artefact writes a file into the build's own directory.
func (b *build) artefact(name string, content []byte) error {
	return b.Engine.artefact(b.Request.Build, name, content)
}

// artefact writes a file into the directory of a run.
func (e *Engine) artefact(run, name string, content []byte) error {
	path := filepath.Join(e.State, "builds", run, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	return nil
}
