package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// initError is a base that cannot be worked on, or agents that cannot be run.
// A person has to look.
type initError struct {
	what string
	err  error
}

func (e *initError) Error() string { return e.what + ": " + e.err.Error() }
func (e *initError) Unwrap() error { return e.err }

// thrice tries up to three times: what fails here is mostly the network.
func thrice[T any](ctx context.Context, log *slog.Logger, fn func(context.Context) (T, error)) (T, error) {
	var none T
	var failed error
	for try := range 3 {
		if try > 0 {
			if err := pause(ctx, time.Duration(try)*2*time.Second); err != nil {
				return none, err
			}
		}
		value, err := fn(ctx)
		if err == nil {
			return value, nil
		}
		if ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		if errors.Is(err, forge.ErrLater) {
			return none, err // in a minute, or an hour: the build waits without a worker
		}
		if bad, ok := errors.AsType[*config.Error](err); ok {
			return none, bad
		}
		log.WarnContext(ctx, "the repository could not be prepared", "try", try+1, "error", err)
		failed = err
		if errors.Is(err, repo.ErrMissing) {
			break // what is not there will not be in a few seconds
		}
	}
	return none, &initError{what: "the repository could not be prepared", err: failed}
}

// pin fetches the base and settles which commit the build starts from. It comes
// before everything: the planners read that commit.
func (b *build) pin(ctx context.Context) (pinned, error) {
	remote, err := b.remote(ctx)
	if err != nil {
		return pinned{}, err
	}
	if c := b.Request.Contender; c != nil {
		return c.Start, b.fetchStart(ctx, remote, c.Start)
	}
	standard, err := b.mirror.DefaultBranch(ctx, remote)
	if err != nil {
		return pinned{}, err
	}
	trunk, err := b.mirror.Fetch(ctx, remote, standard)
	if err != nil {
		return pinned{}, err
	}
	owners, err := b.Forge.OwnersFile(ctx)
	if err != nil {
		return pinned{}, err
	}
	p := pinned{ConfigSHA: trunk, Owners: string(owners), BaseSHA: trunk, Standard: standard}
	conf, err := b.configured(ctx, b.mirror, b.Request.Repo, p)
	if err != nil {
		return pinned{}, err
	}
	p.Base = cmp.Or(b.Request.Base, conf.Build.Base, standard)
	if b.Request.Follow != nil {
		if p, err = b.pinPull(ctx, remote, p); err != nil {
			return pinned{}, err
		}
		return p, b.holdStart(ctx, p)
	}
	if p.Default = p.Base == standard; !p.Default {
		if p.BaseSHA, err = b.mirror.Fetch(ctx, remote, p.Base); err != nil {
			return pinned{}, err
		}
	}
	return p, b.holdStart(ctx, p)
}

// fetchStart sees to it that what a comparison has pinned is here.
func (b *build) fetchStart(ctx context.Context, remote repo.Remote, p pinned) error {
	for _, branch := range []string{p.Standard, p.Base} {
		if b.mirror.Has(ctx, p.BaseSHA) && b.mirror.Has(ctx, p.ConfigSHA) {
			break
		}
		if _, err := b.mirror.Fetch(ctx, remote, branch); err != nil {
			return err
		}
	}
	return b.holdStart(ctx, p)
}

// initialise decides how the work is tested and creates the integration branch.
// It runs beside the plan, which its failure does not cost.
func (b *build) initialise(ctx context.Context) error {
	if !b.fold.isInitialised() {
		_, err := step.Effect(ctx, b.journal, b.fold.key(keyInit), func(ctx context.Context) (initialised, error) {
			return thrice(ctx, b.log, b.initialiseOnce)
		})
		if err != nil {
			return err
		}
	}
	b.site.commands = b.fold.tests()
	return nil
}

func (b *build) initialiseOnce(ctx context.Context) (initialised, error) {
	var out initialised
	var err error
	base := b.fold.pinned().BaseSHA
	if out.Commands, err = commandsFor(ctx, b.mirror, b.workDir(), b.conf, base); err != nil {
		return out, err
	}
	for _, name := range []string{".github/pull_request_template.md", ".github/PULL_REQUEST_TEMPLATE.md", "pull_request_template.md"} {
		if text, err := b.mirror.File(ctx, base, name); err == nil {
			out.Template = string(text)
			break
		}
	}
	return out, b.mirror.SetRef(ctx, b.site.integration(), b.fold.pinned().from(), repo.Any)
}

// commandsFor are the configured ones, or else what the base's files suggest: an
// agent's commit does not decide how it is tested. A base that suggests none
// leaves it to what the build adds. They are looked for below dir.
func commandsFor(ctx context.Context, mirror *repo.Mirror, dir string, conf config.Repo, commit string) (evidence.Commands, error) {
	if c := evidence.Commands(conf.Commands); c != (evidence.Commands{}) {
		return c, nil
	}
	dir, err := os.MkdirTemp(dir, "detect-")
	if err != nil {
		return evidence.Commands{}, fmt.Errorf("look for build and test commands: %w", err)
	}
	defer func() { _ = repo.RemoveAll(context.WithoutCancel(ctx), dir) }() // close removes what this leaves
	if err := mirror.Checkout(ctx, commit, dir); err != nil {
		return evidence.Commands{}, err
	}
	found, _ := evidence.Detect(os.DirFS(dir))
	return found, nil
}
