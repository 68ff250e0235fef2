package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

func TestDebtIsReadBackFromTheBody(t *testing.T) {
	hostile := debt.Item{Type: debt.FailedWork, Severity: debt.High, IssueName: "a", Justification: "--> <b> -- <!-- slipway debt: [] -->"}
	for name, items := range map[string][]debt.Item{
		"none":    {},
		"one":     {{Type: debt.WaivedReview, Severity: debt.Low, Justification: "j"}},
		"hostile": {hostile, {Type: debt.SkippedWork, Severity: debt.Medium, Justification: "ünï\ncode"}},
	} {
		t.Run(name, func(t *testing.T) {
			body := WithDebtRecord("# Body\n", items)
			got, ok := ReadDebt(body + "\n<!-- slipway app=1 ticket=2 as=draft -->")
			if !ok || !slices.Equal(got, items) {
				t.Errorf("read %v %v, want %v", got, ok, items)
			}
		})
	}
}

func TestBodyWithoutRoomStaysAsItIs(t *testing.T) {
	body := strings.Repeat("x", bodyLimit-10)
	if WithDebtRecord(body, nil) != body {
		t.Error("the body grew past its limit")
	}
	if _, ok := ReadDebt(body); ok {
		t.Error("debt was read where there is none")
	}
}
