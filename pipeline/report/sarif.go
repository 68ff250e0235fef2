package report

import (
	"encoding/json"
	"net/url"
	"slices"

	"github.com/slipway-dev/slipway/pipeline/finding"
)

// ReviewSARIF is the open findings as SARIF 2.1.0
// (https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/sarif-v2.1.0-os.html): one
// run, a rule for each lens that found something.
func ReviewSARIF(r Review) ([]byte, error) {
	run := sarifRun{
		Tool:    sarifTool{Driver: sarifDriver{Name: "Slipway", Rules: []sarifRule{}}},
		Results: []sarifResult{}, ColumnKind: "utf16CodeUnits",
		Invocations: []sarifInvocation{{ExecutionSuccessful: r.Whole()}},
	}
	for _, g := range r.Gaps {
		run.Invocations[0].Notifications = append(run.Invocations[0].Notifications, sarifNotification{
			Level: "warning", Message: sarifText{oneLine(g.Agent+" "+g.State+": "+g.Reason, 1000)},
		})
	}
	for _, e := range r.Open() {
		lens := oneLine(e.Lens, 60)
		if !slices.ContainsFunc(run.Tool.Driver.Rules, func(k sarifRule) bool { return k.ID == lens }) {
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{ID: lens, Short: sarifText{"Found by the lens " + lens}})
		}
		run.Results = append(run.Results, sarifOf(e, lens))
	}
	return json.MarshalIndent(sarifLog{
		Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run},
	}, "", "  ")
}

func sarifOf(e finding.Entry, lens string) sarifResult {
	out := sarifResult{
		RuleID: lens, Level: "warning", Message: sarifText{oneLine(e.Title, 200) + ": " + oneLine(e.Claim, 2000)},
		Fingerprints: map[string]string{"slipway/v1": e.ID},
		Properties:   sarifProperties{Severity: string(e.Severity), Confidence: e.Confidence, Number: e.Number},
	}
	switch e.Severity {
	case finding.Critical, finding.High:
		out.Level = "error"
	case finding.Low:
		out.Level = "note"
	}
	if e.Path == "" {
		return out
	}
	at := sarifPhysical{Artifact: sarifArtifact{URI: (&url.URL{Path: e.Path}).EscapedPath()}}
	if e.StartLine > 0 && e.Side == finding.NewSide {
		at.Region = &sarifRegion{Start: e.StartLine, End: max(e.StartLine, e.EndLine)}
	}
	out.Locations = []sarifLocation{{at}}
	return out
}

type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool        sarifTool         `json:"tool"`
	Invocations []sarifInvocation `json:"invocations"`
	Results     []sarifResult     `json:"results"`
	ColumnKind  string            `json:"columnKind"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name  string      `json:"name"`
	Rules []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID    string    `json:"id"`
	Short sarifText `json:"shortDescription"`
}

type sarifInvocation struct {
	ExecutionSuccessful bool                `json:"executionSuccessful"`
	Notifications       []sarifNotification `json:"toolExecutionNotifications,omitempty"`
}

type sarifNotification struct {
	Level   string    `json:"level"`
	Message sarifText `json:"message"`
}

type sarifResult struct {
	RuleID       string            `json:"ruleId"`
	Level        string            `json:"level"`
	Message      sarifText         `json:"message"`
	Locations    []sarifLocation   `json:"locations,omitempty"`
	Fingerprints map[string]string `json:"partialFingerprints"`
	Properties   sarifProperties   `json:"properties"`
}

type sarifProperties struct {
	Severity   string `json:"severity"`
	Confidence int    `json:"confidence"`
	Number     int    `json:"number"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifLocation struct {
	Physical sarifPhysical `json:"physicalLocation"`
}

type sarifPhysical struct {
	Artifact sarifArtifact `json:"artifactLocation"`
	Region   *sarifRegion  `json:"region,omitempty"`
}

type sarifArtifact struct {
	URI string `json:"uri"`
}

type sarifRegion struct {
	Start int `json:"startLine"`
	End   int `json:"endLine"`
}
