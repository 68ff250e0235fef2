package handlers

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestTexts(t *testing.T) {
	for name, text := range map[string]string{
		"queued":           queuedText("b-0123456789ab", "mona", "/"),
		"queued-long":      queuedText("b-0123456789ab", "mona", "/slipway "),
		"open-build":       openBuildText("b-0123456789ab", "https://github.com/o/r/issues/12#issuecomment-1", "/"),
		"open-pull":        openPullText(forge.Pull{Number: 31, URL: "https://github.com/o/r/pull/31"}),
		"not-on-pull":      notOnPullText("`/build`"),
		"refused":          refusedText("`/build`", forge.Write),
		"refused-label":    refusedText("The label `slipway:build`", forge.Write),
		"given-up":         givenUpText("`/build`", errors.New("its worker crashed 5 times in a row")),
		"nothing-open":     nothingOpenText("/"),
		"nothing-ended":    nothingEndedText("b-0123456789ab", "https://github.com/o/r/issues/12#issuecomment-1", "/"),
		"not-ours":         notOursText("`/cancel`"),
		"unwanted-plan":    unwantedText("the plan that waits has the hash 0123456789ab, not abc", report.Build{ID: "b-1", Ticket: 12, Prefix: "/slipway ", State: report.WaitingApproval, Gate: &report.Gate{Kind: report.PlanGate, Hash: "0123456789abcdef"}}),
		"unwanted-ended":   unwantedText("the build succeeded, so there is nothing to resume", report.Build{ID: "b-1", Ticket: 12, State: report.Succeeded}),
		"unwanted-hostile": unwantedText("<b>@mona</b> moved since, fixes #3", report.Build{ID: "b-1", Ticket: 12, State: report.Running}),
		"no-build":         noBuildText("/"),
		"review-queued":    reviewQueuedText("r-0123456789ab", "mona", "/"),
		"review-automatic": reviewQueuedText("r-0123456789ab", "", "/"),
		"review-open":      openReviewText("r-0123456789ab", "https://github.com/o/r/pull/13#issuecomment-1", "/"),
		"review-closed":    closedPullText("`/review`"),
		"review-no-pull":   unseenPullText("`/review`"),
		"review-fix":       mendLaterText("b-0123456789ab"),
		"review-elsewhere": reviewElsewhereText(forge.Pull{Number: 13, URL: "https://github.com/o/r/pull/13"}, "https://github.com/o/r/pull/13#issuecomment-1"),
		"review-built":     builtInsteadText("`/review`", "/"),
		"wrong-value":      wrongText(&command.Error{Field: "--max-parallel", Value: "many", Rule: "must be a whole number from 1 to 64"}, "/"),
		"wrong-hostile":    wrongText(&command.Error{Field: "command", Value: "` @everyone <!-- x -->\u202e\n# big", Rule: "the commands are build"}, "/"),
		"wrong-no-value":   wrongText(&command.Error{Field: "--base", Rule: "needs a value: --base BRANCH"}, "/"),
		"unreadable":       unreadableText("/"),
		"help-read":        helpText(forge.Read, "/", "slipway:build", "slipway:review"),
		"help-triage":      helpText(forge.Triage, "/", "slipway:build", "slipway:review"),
		"settings": settingsText([]config.Setting{
			{Key: "build.label", Value: "slipway:build", Origin: "default"},
			{Key: "commands.test", Value: "go test ./... | tee `log` \n# @mona", Origin: ".github/slipway.yml"},
			{Key: "limits.usd_per_build", Value: "3", Origin: "the server"},
		}),
		"broken": brokenText(&config.Error{Origin: ".github/slipway.yml", Problems: []config.Problem{
			{Line: 3, Key: "limits.usd", Text: "unknown key; valid here: usd_per_build"},
			{Text: "not one YAML document: <b>@mona</b> fixes #3"},
		}}),
		"config-valid": configText(".github/slipway.yml"),
		"config-elsewhere": elsewhereText(".github/slipway.yml", &config.Error{Origin: "slipway.yml of harbour/.github", Problems: []config.Problem{
			{Line: 3, Key: "limits.usd", Text: "unknown key; valid here: usd_per_build"},
		}}),
		"older":            olderText("The button `Re-run`", "b-0123456789ab", "/"),
		"over-hour":        overText(trigger{typed: "`/build`", by: forge.Person{Login: "mona"}}, queue.Rate{Max: 60, Per: time.Hour}),
		"over-day":         overText(trigger{typed: "`/build`", by: forge.Person{Login: "renovate[bot]"}}, queue.Rate{Max: 10, Per: perDay}),
		"help-write":       helpText(forge.Write, "/slipway ", "slipway:build", "slipway:review"),
		"follow-up":        queuedFollowUpText("b-0123456789ab", "mona", "", "/"),
		"follow-up-waits":  queuedFollowUpText("b-0123456789ab", "mona", "b-9876543210ba", "/slipway "),
		"fix-closed":       closedText("`/fix`"),
		"fix-fork":         forkText("`/fix`"),
		"fix-no-pull":      noPullText("`/fix`", "/"),
		"fix-not-ours-ci":  notOursCIText("`/fix`"),
		"fix-no-findings":  noFindingsText("`/fix`", "/"),
		"fix-no-finding":   noFindingText(7, []finding.Entry{{Finding: finding.Finding{Path: "a.go", StartLine: 3, Title: "`@mona` | fixes #3", Claim: "c"}}, {ID: "0123"}}),
		"misplaced":        misplacedText("`/fix`"),
		"refused-feedback": refusedText("What was said in a review", forge.Write),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".md")
			if *update {
				if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if text+"\n" != string(want) {
				t.Fatalf("got\n%s\nwant\n%s", text, want)
			}
		})
	}
}
