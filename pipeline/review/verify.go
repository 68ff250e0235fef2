package review

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/finding"
)

// shardSize is how many claims one verifier gets.
const shardSize = 8

// shards deals the candidates out to verifiers, in order.
func (r *run) shards(name string, all []*candidate) []slot[Docket, Verdicts] {
	var slots []slot[Docket, Verdicts]
	for shard := range slices.Chunk(all, shardSize) {
		in := Docket{Evidence: r.target.Evidence, Diff: r.excerpt(shard)}
		for i, c := range shard {
			in.Claims = append(in.Claims, Claim{ID: claimID(i), Remark: Remark{
				Finding: c.Finding, EndLine: c.EndLine, Side: c.Side, Quote: c.Quote, FailureScenario: c.FailureScenario,
			}})
		}
		slots = append(slots, slot[Docket, Verdicts]{name: fmt.Sprintf("%s-%02d", name, len(slots)+1), role: inert(r.options, Verifier), in: in})
	}
	return slots
}

// claimID names the claim at place i of a shard.
func claimID(i int) string { return fmt.Sprintf("f%d", i+1) }

// excerpt is the diff of the files that a shard accuses, as far as it is to be
// reviewed.
func (r *run) excerpt(shard []*candidate) string {
	skipped := map[string]bool{}
	for _, p := range r.survey.manifest {
		skipped[p.Path] = p.Skipped != ""
	}
	var files []*gitdiff.File
	for _, c := range shard {
		for _, f := range r.survey.whole.byName[c.Path] {
			if !skipped[c.Path] && !slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	texts := pack(files, math.MaxInt, chunkBytes)
	switch len(texts) {
	case 0:
		return ""
	case 1:
		return texts[0]
	default:
		return texts[0] + "[the diff of these files is longer and was cut here]\n"
	}
}

// settle writes the verdicts into the candidates.
func (r *run) settle(ctx context.Context, all []*candidate, slots []slot[Docket, Verdicts], said []Verdicts, done round) error {
	for i, c := range all {
		shard := i / shardSize
		if end := done.Slots[shard]; end.State != batch.Completed {
			c.unheard(fmt.Sprintf("nobody verified it: %s %s: %s", slots[shard].name, end.State, end.Reason))
			continue
		}
		id := claimID(i % shardSize)
		at := slices.IndexFunc(said[shard].Verdicts, func(v Verdict) bool { return v.ID == id })
		if err := r.judge(ctx, c, said[shard].Verdicts[at]); err != nil { // the role's check wants one for each claim
			return err
		}
	}
	return nil
}

// unheard settles a candidate that nobody judged. What was confirmed before
// stays so.
func (c *candidate) unheard(why string) {
	c.Reason = why
	if c.was != finding.Confirmed {
		c.Verdict, c.Confidence = finding.Uncertain, 0
	}
}

// judge takes a verdict, as far as it is backed: a critical fault is not talked
// away, and not claimed, without code or a run that shows it.
func (r *run) judge(ctx context.Context, c *candidate, v Verdict) error {
	where := v.Path
	if where == "" {
		where = c.Path
	}
	backed, err := r.stands(ctx, where, v.Quote)
	if err != nil {
		return err
	}
	if v.Verdict == finding.Rejected && c.Severity == finding.Critical && !backed && !c.gone {
		v.Verdict, v.Confidence = finding.Uncertain, 0
		v.Reason = "rejected without a quote that is in the code: " + v.Reason
	}
	switch {
	case c.was != finding.Confirmed: // judged for the first time, or not settled before
		c.Verdict, c.Confidence = v.Verdict, v.Confidence
	case v.Verdict == finding.Rejected:
		c.State = finding.Fixed
	case v.Verdict == finding.Confirmed:
		c.Confidence = max(c.Confidence, v.Confidence)
	}
	c.Reason = v.Reason
	if v.Witness != "" {
		c.Witness = v.Witness
	}
	if c.Verdict == finding.Confirmed && c.Severity == finding.Critical && !c.quoted && !backed && c.Witness == "" {
		c.Severity = finding.High
		c.Reason += " (demoted from critical: no quote that is in the code, and no witness)"
	}
	return nil
}
