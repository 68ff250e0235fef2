package app

import (
	"context"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// A RoleModel says who answers for a role, and what decided that.
type RoleModel struct {
	Role    string        `json:"role"`
	Key     string        `json:"key"`    // models.<role>, models.default, or runtime where its own default counts
	Origin  string        `json:"origin"` // where the key's value is from
	Targets []ModelTarget `json:"targets"`
}

// A ModelTarget is one of those that are asked: each when the one before it
// has failed for good.
type ModelTarget struct {
	Runtime string      `json:"runtime"`
	Model   string      `json:"model,omitempty"`  // absent: the runtime's own choice
	Effort  string      `json:"effort,omitempty"` // absent: the model's default
	Runs    bool        `json:"runs"`             // the runtime can run in this process
	Problem string      `json:"problem,omitempty"`
	Price   *ModelPrice `json:"usd_per_million_tokens,omitempty"` // absent: not known
}

// A ModelPrice is what a model costs, in US dollars per million tokens.
type ModelPrice struct {
	Input      report.USD `json:"input"`
	Output     report.USD `json:"output"`
	CacheRead  report.USD `json:"cache_read"`
	CacheWrite report.USD `json:"cache_write"`
}

// Models resolves every role of a repository's configuration and looks whether
// the runtimes can run here. No model is asked.
func Models(ctx context.Context, conf config.Server, engine *pipeline.Engine, repo config.Repo) ([]RoleModel, error) {
	assigned, err := repo.Assignments(engine.Only)
	if err != nil {
		return nil, err
	}
	prices, err := pricesOf(conf)
	if err != nil {
		return nil, err
	}
	problems := map[string]error{} // by runtime
	var rows []RoleModel
	for _, a := range assigned {
		row := RoleModel{Role: a.Role, Key: a.Key, Origin: a.Origin}
		for _, t := range a.Chain {
			if _, looked := problems[t.Runtime]; !looked {
				_, problems[t.Runtime] = engine.Runtime(ctx, t.Runtime)
			}
			target := ModelTarget{Runtime: t.Runtime, Model: t.Model, Effort: t.Effort, Runs: true, Price: priceOf(prices, t.Model)}
			if problem := problems[t.Runtime]; problem != nil {
				target.Runs, target.Problem = false, problem.Error()
			}
			row.Targets = append(row.Targets, target)
		}
		rows = append(rows, row)
	}
	return rows, context.Cause(ctx)
}

// priceOf is what a million tokens of each kind cost; nil where nobody knows.
func priceOf(prices runtime.Prices, model string) *ModelPrice {
	const million = 1_000_000
	var out ModelPrice
	for _, part := range []struct {
		of  *report.USD
		use runtime.Usage
	}{
		{&out.Input, runtime.Usage{Input: million}}, {&out.Output, runtime.Usage{Output: million}},
		{&out.CacheRead, runtime.Usage{CacheRead: million}}, {&out.CacheWrite, runtime.Usage{CacheWrite: million}},
	} {
		micros, known := prices.Cost(model, part.use)
		if !known {
			return nil
		}
		*part.of = report.USD(micros)
	}
	return &out
}
