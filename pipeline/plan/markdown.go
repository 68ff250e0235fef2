package plan

import (
	"fmt"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/graph"
)

// Markdown is the PRD as a page.
func (p PRD) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n## Acceptance criteria\n\n", p.Title, p.ValidatedDescription)
	for _, c := range p.AcceptanceCriteria {
		must := ""
		if c.MustHave {
			must = " (must have)"
		}
		fmt.Fprintf(&b, "- **%s**%s: %s\n", c.ID, must, c.Text)
	}
	list(&b, "Nice to have", p.NiceToHave)
	list(&b, "Out of scope", p.OutOfScope)
	list(&b, "Assumptions", p.Assumptions)
	list(&b, "Risks", p.Risks)
	return b.String()
}

// Markdown is the architecture as a page.
func (a Architecture) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Architecture\n\n%s\n", a.Summary)
	if len(a.Components) > 0 {
		b.WriteString("\n## Components\n\n")
		for _, c := range a.Components {
			fmt.Fprintf(&b, "- **%s**: %s", c.Name, c.Responsibility)
			if len(c.TouchesFiles) > 0 {
				fmt.Fprintf(&b, " (`%s`)", strings.Join(c.TouchesFiles, "`, `"))
			}
			b.WriteByte('\n')
		}
	}
	list(&b, "Interfaces", a.Interfaces)
	if len(a.Decisions) > 0 {
		b.WriteString("\n## Decisions\n\n")
		for _, d := range a.Decisions {
			fmt.Fprintf(&b, "- **%s**: %s\n", d.Decision, d.Rationale)
		}
	}
	if a.FileChangesOverview != "" {
		fmt.Fprintf(&b, "\n## Files\n\n%s\n", a.FileChangesOverview)
	}
	return b.String()
}

// IssueMarkdown is one planned issue as a page.
func IssueMarkdown(is graph.Issue) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %02d %s\n\n%s\n\n## Acceptance criteria\n\n", is.Number, is.Title, is.Description)
	for _, c := range is.AcceptanceCriteria {
		fmt.Fprintf(&b, "- %s (%s)\n", c.Text, strings.Join(c.PRDIDs, ", "))
	}
	list(&b, "Depends on", is.DependsOn)
	list(&b, "Files", is.Files())
	if is.TestingStrategy != "" {
		fmt.Fprintf(&b, "\n## Testing\n\n%s\n", is.TestingStrategy)
	}
	if is.Guidance.RiskRationale != "" {
		fmt.Fprintf(&b, "\n## Risk\n\n%s\n", is.Guidance.RiskRationale)
	}
	return b.String()
}

func list(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, it := range items {
		fmt.Fprintf(b, "- %s\n", it)
	}
}
