package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/eval"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/results"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// An Evaluation is a suite and how it is run.
type Evaluation struct {
	Suite   eval.Suite
	Options eval.Options // Reviewer, Now and Results are set by Run
	Agents  Agents       // Runtime and Recordings are the targets'
	Record  string       // directory in which each case is recorded, as recordings of a target are read; empty: none
}

// Run reviews the cases in a temporary directory, which is removed at the end,
// and returns what eval.Run does.
func (e Evaluation) Run(ctx context.Context, conf config.Server, log *slog.Logger) (_ []eval.Summary, err error) {
	dir, err := os.MkdirTemp("", "slipway-eval-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the evaluation: %w", err)
	}
	defer func() { err = errors.Join(err, repo.RemoveAll(context.WithoutCancel(ctx), dir)) }()
	e.Options.Now, e.Options.Results = time.Now, results.Options{Hide: Hide(e.Agents.Environ)}
	most, bound, err := e.budget(conf)
	if err != nil {
		return nil, err
	}
	bench, err := OpenBench(ctx, dir, most, bound)
	if err != nil {
		return nil, err
	}
	defer func() { _ = bench.Close() }() // it is removed
	v := &evaluator{Evaluation: e, bench: bench, dir: dir, conf: conf, log: log, fixtures: map[string]*fixture{}, panels: map[string]*Panel{}}
	if err := v.hire(); err != nil {
		return nil, err
	}
	e.Options.Reviewer = v
	return eval.Run(ctx, e.Suite, e.Options)
}

// budget is what all cases together may cost, in micro-dollars: what is left of the
// suite's budget, and not more than the configuration gives a day.
func (e Evaluation) budget(conf config.Server) (most int64, bound string, err error) {
	most, bound = dayOf(conf), "limits.usd_per_day"
	left, err := eval.Left(e.Suite, e.Options)
	if left >= 0 && (most < 0 || left < most) {
		most, bound = left, "budget_usd"
	}
	return most, bound, err
}

// dayOf is what a day may cost, in micro-dollars; below zero: there is no bound.
func dayOf(conf config.Server) int64 {
	if day := conf.Repo.Over(config.Defaults()).Limits.USDPerDay; day > 0 {
		return int64(day)
	}
	return -1
}

// evaluator reviews the trials of a suite on a bench.
type evaluator struct {
	Evaluation
	bench  *Bench
	dir    string
	conf   config.Server
	log    *slog.Logger
	panels map[string]*Panel // by target and variant; not changed after hire

	mu       sync.Mutex
	fixtures map[string]*fixture // by name
}

// A fixture is the stage of one repository and the commit that cases begin at.
type fixture struct {
	stage *repo.Stage
	once  sync.Once
	base  string
	err   error
}

// hire makes a panel for each target and variant, so that what is wrong with one
// is told before anything is spent.
func (v *evaluator) hire() error {
	variants := v.Suite.Variants
	if len(variants) == 0 {
		variants = []eval.Variant{{}}
	}
	for _, t := range v.Suite.Targets {
		for _, variant := range variants {
			conf, err := v.configure(t, variant)
			if err != nil {
				return err
			}
			agents := v.Agents
			agents.Runtime, agents.Recordings = t.Runtime, nil
			p, err := v.bench.Panel(conf, agents, v.log)
			if err != nil {
				return fmt.Errorf("target %s: %w", t.Name, err)
			}
			v.panels[panelOf(t, variant)] = p
		}
	}
	return nil
}

func panelOf(t eval.Target, v eval.Variant) string { return t.Name + "\x00" + v.Name }

// configure puts a variant and a target over the server's configuration.
func (v *evaluator) configure(t eval.Target, variant eval.Variant) (config.Server, error) {
	layer := maps.Clone(variant.Config)
	if layer == nil {
		layer = map[string]any{}
	}
	if len(t.Models) > 0 {
		layer["models"] = t.Models
	}
	conf := v.conf
	text, err := yaml.Dump(layer)
	if err != nil {
		return conf, fmt.Errorf("variant %s: %w", variant.Name, err)
	}
	own, err := config.Parse(text, cmp.Or(variant.Name, t.Name))
	if err != nil {
		return conf, fmt.Errorf("the configuration of target %s, variant %q: %w", t.Name, variant.Name, err)
	}
	conf.Repo = own.Over(conf.Repo)
	return conf, nil
}

// Review implements eval.Reviewer.
func (v *evaluator) Review(ctx context.Context, t eval.Trial) (eval.Outcome, error) {
	c := t.Case
	id := reviewOf(t)
	f, err := v.fixture(ctx, c)
	if err != nil {
		return eval.Outcome{}, err
	}
	head := "refs/slipway/" + id
	if _, err := f.stage.Apply(ctx, head, f.base, c.Patch); err != nil {
		return eval.Outcome{}, fmt.Errorf("the diff does not apply: %w", err)
	}
	change := Change{Review: id, Repo: keyOf(c), Stage: f.stage, Base: baseRef, Head: head, Goal: c.Goal}
	if t.Target.Recordings != "" {
		if change.Recordings, err = recorded(v.Suite.Path(t.Target.Recordings), c.ID); err != nil {
			return eval.Outcome{}, err
		}
	}
	if v.Record != "" {
		change.Record = filepath.Join(v.Record, c.ID)
	}
	panel := v.panels[panelOf(t.Target, t.Variant)]
	final, err := panel.Review(ctx, change)
	return eval.Outcome{Review: final, Transcript: panel.Transcripts(id)}, err
}

// baseRef is what every case of a fixture is compared with.
const baseRef = "refs/slipway/base"

// reviewOf names the review of a trial, on the bench alone.
func reviewOf(t eval.Trial) string {
	sum := sha256.Sum256([]byte(panelOf(t.Target, t.Variant)))
	return "r-" + t.Case.ID + "-" + hex.EncodeToString(sum[:3]) + "-" + strconv.Itoa(t.Run)
}

// keyOf names the repository of a case, on the bench alone.
func keyOf(c eval.Case) string {
	origin := cmp.Or(c.Fixture, c.Repo+"@"+c.Base)
	sum := sha256.Sum256([]byte(origin))
	stem := strings.TrimSuffix(filepath.Base(cmp.Or(c.Fixture, c.Repo)), ".txtar")
	return strings.Trim(stem, ".") + "-" + hex.EncodeToString(sum[:4])
}

// fixture is the repository of a case, staged once.
func (v *evaluator) fixture(ctx context.Context, c eval.Case) (*fixture, error) {
	key := keyOf(c)
	v.mu.Lock()
	f := v.fixtures[key]
	if f == nil {
		f = &fixture{}
		v.fixtures[key] = f
	}
	v.mu.Unlock()
	f.once.Do(func() {
		if f.stage, f.err = repo.OpenStage(ctx, filepath.Join(v.dir, "stages", key)); f.err == nil {
			f.base, f.err = v.begin(ctx, f.stage, c)
		}
	})
	return f, f.err
}

// begin stages what a case begins at.
func (v *evaluator) begin(ctx context.Context, stage *repo.Stage, c eval.Case) (string, error) {
	if c.Repo == "" {
		return stage.Files(ctx, baseRef, c.Files)
	}
	source, err := repo.OpenSource(ctx, v.Suite.Path(c.Repo))
	if err != nil {
		return "", err
	}
	commit, err := source.Commit(ctx, cmp.Or(c.Base, "HEAD"))
	if err != nil {
		return "", err
	}
	return stage.Take(ctx, baseRef, source, commit, "")
}

// recorded are the recordings of a case: its own, and for every other step those
// that all cases share. A case's own are an archive, or a directory as --record
// writes it.
func recorded(dir, id string) ([]runtime.Recording, error) {
	own, err := readArchive(filepath.Join(dir, id+".txtar"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Stat(filepath.Join(dir, id)); serr == nil {
			own, err = runtime.ReadRecordings(os.DirFS(filepath.Join(dir, id)))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	shared, err := readArchive(filepath.Join(dir, "shared.txtar"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(own)+len(shared) == 0 {
		return nil, fmt.Errorf("there is no recording of %s in %s", id, dir)
	}
	for _, r := range shared {
		if !slices.ContainsFunc(own, func(o runtime.Recording) bool { return o.Step == r.Step }) {
			own = append(own, r)
		}
	}
	return own, nil
}

func readArchive(file string) ([]runtime.Recording, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all, err := runtime.ReadArchive(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}
