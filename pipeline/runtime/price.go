package runtime

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A Price is what a model costs, in micro-dollars per million tokens.
type Price struct {
	Input      int64
	Output     int64
	CacheRead  int64 // 0 means as Input
	CacheWrite int64 // 0 means as Input

	// Long is the price of a request whose prompt, cached parts included, has
	// more than LongOver tokens. Nil means that length does not matter.
	Long     *Price
	LongOver int64
}

// Prices are the prices of models by name, as their maker spells it.
type Prices map[string]Price

// usd makes a Price of micro-dollars per million tokens.
func usd(input, output, cacheRead, cacheWrite int64) Price {
	return Price{Input: input, Output: output, CacheRead: cacheRead, CacheWrite: cacheWrite}
}

// from sets what a request with a prompt of more than tokens costs.
func (p Price) from(tokens int64, long Price) Price {
	p.Long, p.LongOver = &long, tokens
	return p
}

// openAILong is the rule of OpenAI's large models: above 272,000 tokens of
// prompt, input and cache cost twice as much and output half as much again.
func openAILong(p Price) Price {
	return p.from(272_000, usd(2*p.Input, p.Output*3/2, 2*p.CacheRead, 2*p.CacheWrite))
}

// builtIn are list prices of November 2026, from the makers' price pages:
// platform.claude.com/docs/en/about-claude/pricing with cache writes of five
// minutes, and developers.openai.com/api/docs/pricing at the standard tier.
var builtIn = Prices{
	"claude-fable-5-1":  usd(10_000_000, 50_000_000, 250_000, 12_500_000),
	"claude-mythos-5-1": usd(10_000_000, 50_000_000, 250_000, 12_500_000),
	"claude-fable-5":    usd(10_000_000, 50_000_000, 1_000_000, 12_500_000),
	"claude-mythos-5":   usd(10_000_000, 50_000_000, 1_000_000, 12_500_000),
	"claude-opus-5-5":   usd(4_000_000, 20_000_000, 200_000, 5_000_000),
	"claude-opus-5":     usd(5_000_000, 25_000_000, 500_000, 6_250_000),
	"claude-opus-4-8":   usd(5_000_000, 25_000_000, 500_000, 6_250_000),
	"claude-opus-4-7":   usd(5_000_000, 25_000_000, 500_000, 6_250_000),
	"claude-opus-4-6":   usd(5_000_000, 25_000_000, 500_000, 6_250_000),
	"claude-opus-4-5":   usd(5_000_000, 25_000_000, 500_000, 6_250_000),
	"claude-sonnet-5-5": usd(2_000_000, 10_000_000, 100_000, 2_500_000),
	"claude-sonnet-5":   usd(2_000_000, 10_000_000, 200_000, 2_500_000),
	"claude-sonnet-4-6": usd(3_000_000, 15_000_000, 300_000, 3_750_000),
	"claude-sonnet-4-5": usd(3_000_000, 15_000_000, 300_000, 3_750_000),
	"claude-haiku-5-5":  usd(100_000, 500_000, 10_000, 125_000).from(100_000, usd(500_000, 2_500_000, 50_000, 625_000)),
	"claude-haiku-4-5":  usd(1_000_000, 5_000_000, 100_000, 1_250_000),

	"gpt-6-astra":        openAILong(usd(10_000_000, 50_000_000, 1_000_000, 12_500_000)),
	"gpt-6.1-sol":        openAILong(usd(2_000_000, 10_000_000, 100_000, 2_500_000)),
	"gpt-6.1-terra":      openAILong(usd(1_000_000, 5_000_000, 50_000, 1_250_000)),
	"gpt-6-sol":          openAILong(usd(2_000_000, 10_000_000, 200_000, 2_500_000)),
	"gpt-6-luna":         openAILong(usd(100_000, 500_000, 10_000, 125_000)),
	"gpt-5.6-sol":        openAILong(usd(4_000_000, 20_000_000, 400_000, 4_000_000)),
	"gpt-5.6-terra":      openAILong(usd(2_000_000, 12_000_000, 200_000, 2_000_000)),
	"gpt-5.6-luna":       openAILong(usd(200_000, 1_200_000, 20_000, 200_000)),
	"gpt-5.5":            openAILong(usd(5_000_000, 30_000_000, 500_000, 5_000_000)),
	"gpt-5.4":            openAILong(usd(2_500_000, 15_000_000, 250_000, 2_500_000)),
	"gpt-5.4-mini":       usd(750_000, 4_500_000, 75_000, 750_000),
	"gpt-5.4-nano":       usd(200_000, 1_250_000, 20_000, 200_000),
	"gpt-5.3-codex":      usd(1_750_000, 14_000_000, 175_000, 1_750_000),
	"gpt-5.2-codex":      usd(1_750_000, 14_000_000, 175_000, 1_750_000),
	"gpt-5.2":            usd(1_750_000, 14_000_000, 175_000, 1_750_000),
	"gpt-5.1-codex-max":  usd(1_250_000, 10_000_000, 125_000, 1_250_000),
	"gpt-5.1-codex-mini": usd(250_000, 2_000_000, 25_000, 250_000),
	"gpt-5.1-codex":      usd(1_250_000, 10_000_000, 125_000, 1_250_000),
	"gpt-5.1":            usd(1_250_000, 10_000_000, 125_000, 1_250_000),
	"gpt-5":              usd(1_250_000, 10_000_000, 125_000, 1_250_000),
	"gpt-5-mini":         usd(250_000, 2_000_000, 25_000, 250_000),
	"gpt-5-nano":         usd(50_000, 400_000, 5_000, 50_000),
	"gpt-4.1":            usd(2_000_000, 8_000_000, 500_000, 2_000_000),
	"gpt-4.1-mini":       usd(400_000, 1_600_000, 100_000, 400_000),
	"gpt-4.1-nano":       usd(100_000, 400_000, 25_000, 100_000),
	"o3":                 usd(2_000_000, 8_000_000, 500_000, 2_000_000),
	"o4-mini":            usd(1_100_000, 4_400_000, 275_000, 1_100_000),

	"minimax-m2.5": usd(300_000, 1_200_000, 30_000, 375_000),
}

// NewPrices returns the built-in prices with those of more beside or instead
// of them. A negative or an unbelievable price is an error that names the model.
func NewPrices(more Prices) (Prices, error) {
	for _, name := range slices.Sorted(maps.Keys(more)) {
		for p := new(more[name]); p != nil; p = p.Long {
			for _, micros := range []int64{p.Input, p.Output, p.CacheRead, p.CacheWrite} {
				if micros < 0 || micros > maxPrice {
					return nil, fmt.Errorf("the price of %s: %d micro-dollars per million tokens is not between 0 and %d", name, micros, int64(maxPrice))
				}
			}
		}
	}
	all := maps.Clone(builtIn)
	maps.Copy(all, more)
	return all, nil
}

// maxPrice keeps a cost within an int64 for any number of tokens that is real.
const maxPrice = 100_000_000_000

// RequestCost is what one request cost, in micro-dollars. known is false where
// there is no price for the model.
func (p Prices) RequestCost(model string, u Usage) (micros int64, known bool) {
	price, known := p.find(model)
	if price.Long != nil && u.Input+u.CacheRead+u.CacheWrite > price.LongOver {
		price = *price.Long
	}
	return price.of(u), known
}

// Cost is what any number of requests cost, in micro-dollars, if none of them
// had a long prompt: a sum of tokens does not tell.
func (p Prices) Cost(model string, u Usage) (micros int64, known bool) {
	price, known := p.find(model)
	return price.of(u), known
}

// Bounded refuses a call with a budget to a model without a price: nothing would
// hold the budget, and a repository names its models itself.
func (p Prices) Bounded(model string, budgetMicros int64) *Error {
	if _, known := p.find(model); known || budgetMicros <= 0 {
		return nil
	}
	return &Error{Class: Fatal, Reason: fmt.Sprintf(
		"there is no price for the model %s, so its budget could not be held: add it to prices in the server's file, with 0 where it is free", model)}
}

// of multiplies and rounds once, halves up.
func (p Price) of(u Usage) int64 {
	const million = 1_000_000
	var whole, parts int64
	for _, item := range []struct{ tokens, price int64 }{
		{u.Input, p.Input}, {u.Output, p.Output},
		{u.CacheRead, cmp.Or(p.CacheRead, p.Input)}, {u.CacheWrite, cmp.Or(p.CacheWrite, p.Input)},
	} {
		whole += item.tokens / million * item.price
		parts += item.tokens % million * item.price
	}
	return whole + (parts+million/2)/million
}

// dated is how makers name one release of a model.
var dated = regexp.MustCompile(`-(\d{8}|\d{4}-\d{2}-\d{2})$`)

// find looks a model up by its whole name, then without the providers in front
// of it, and each without a date. Some providers write a version of Claude with a
// dot.
func (p Prices) find(model string) (Price, bool) {
	for name := strings.ToLower(model); ; {
		plain := dated.ReplaceAllString(name, "")
		for _, spelling := range []string{model, name, plain, strings.ReplaceAll(plain, ".", "-")} {
			if price, ok := p[spelling]; ok {
				return price, true
			}
		}
		_, rest, more := strings.Cut(name, "/")
		if !more {
			return Price{}, false
		}
		name = rest
	}
}
