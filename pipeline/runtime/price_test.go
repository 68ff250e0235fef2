package runtime_test

import (
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

func TestPrices(t *testing.T) {
	prices, err := runtime.NewPrices(runtime.Prices{
		"house-model":       {Input: 1_000_000, Output: 2_000_000},
		"gpt-5":             {Input: 7_000_000},
		"openrouter/x/free": {},
	})
	if err != nil {
		t.Fatal(err)
	}
	const million = 1_000_000
	for name, test := range map[string]struct {
		model string
		used  runtime.Usage
		want  int64 // micro-dollars; negative: no price is known
	}{
		"each kind of token":                 {"claude-opus-4-5", runtime.Usage{Input: million, Output: million, CacheRead: million, CacheWrite: million}, 36_750_000},
		"a few tokens, rounded once":         {"claude-haiku-4-5", runtime.Usage{Input: 10, Output: 5}, 35},
		"halves are rounded up":              {"claude-haiku-5-5", runtime.Usage{Input: 5}, 1},
		"nothing used":                       {"claude-opus-5", runtime.Usage{}, 0},
		"a dated release":                    {"claude-sonnet-4-5-20250929", runtime.Usage{Input: million}, 3_000_000},
		"a release dated with dashes":        {"gpt-5.5-2026-04-23", runtime.Usage{Output: million}, 30_000_000},
		"behind a provider":                  {"anthropic/claude-opus-4-5", runtime.Usage{Input: million}, 5_000_000},
		"behind two, with a dot and capital": {"openrouter/anthropic/Claude-Opus-4.5", runtime.Usage{Input: million}, 5_000_000},
		"configuration adds":                 {"my/house-model", runtime.Usage{Input: million, Output: million}, 3_000_000},
		"cached tokens without a price":      {"house-model", runtime.Usage{CacheRead: million, CacheWrite: million}, 2_000_000},
		"configuration replaces":             {"gpt-5", runtime.Usage{Input: million}, 7_000_000},
		"free by configuration":              {"openrouter/x/free", runtime.Usage{Input: million}, 0},
		"a short prompt":                     {"claude-haiku-5-5", runtime.Usage{Input: 50_000, CacheRead: 50_000, Output: million}, 505_500},
		"a long prompt":                      {"claude-haiku-5-5", runtime.Usage{Input: 50_000, CacheRead: 50_001, Output: million}, 2_527_500},
		"unknown":                            {"gpt-5-unheard-of", runtime.Usage{Input: million}, -1},
		"nameless":                           {"", runtime.Usage{Input: million}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := prices.RequestCost(test.model, test.used)
			if !known {
				got = -1 - got
			}
			if got != test.want {
				t.Errorf("RequestCost = %d, want %d", got, test.want)
			}
		})
	}
	if got, known := prices.Cost("claude-haiku-5-5", runtime.Usage{Input: million}); got != 100_000 || !known {
		t.Errorf("the sum of many short requests costs %d", got)
	}
}

func TestAPriceThatCannotBeIsRefused(t *testing.T) {
	for name, price := range map[string]runtime.Price{
		"negative":                    {Output: -1},
		"unbelievable":                {Input: 1 << 60},
		"negative for a long request": {Long: &runtime.Price{CacheRead: -5}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := runtime.NewPrices(runtime.Prices{"m1": price}); err == nil || !strings.Contains(err.Error(), "m1") {
				t.Errorf("NewPrices = %v", err)
			}
		})
	}
}
