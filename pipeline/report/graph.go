package report

import (
	"strconv"
	"strings"
)

// GitHub draws no Mermaid text above 50,000 characters and no more than 500
// edges; a person reads far less.
const (
	maxNodes   = 80
	maxEdges   = 300
	maxDiagram = 40_000
)

// diagram is the issue graph in Mermaid; empty when it would be unreadable or
// GitHub would not draw it.
func diagram(issues []Issue) string {
	if len(issues) < 2 || len(issues) > maxNodes {
		return ""
	}
	known := numbers(issues)
	var out strings.Builder
	out.WriteString("```mermaid\nflowchart LR\n")
	edges := 0
	for _, is := range byNumber(issues) {
		title := is.Title
		if title == "" {
			title = is.Name
		}
		words := pad(int64(is.Number), 2) + " " + label(title, 40)
		if mark := is.Outcome.mark(); mark != "" {
			words = mark + " " + words
		}
		out.WriteString("  " + node(is.Number) + `["` + words + "\"]\n")
		for _, name := range is.DependsOn {
			if from, ok := known[name]; ok {
				out.WriteString("  " + node(from) + " --> " + node(is.Number) + "\n")
				edges++
			}
		}
		if parent, ok := known[is.ParentName]; ok && is.ParentName != "" { // it took a share of that one's place
			out.WriteString("  " + node(parent) + " -.-> " + node(is.Number) + "\n")
			edges++
		}
	}
	out.WriteString("```")
	if edges > maxEdges || out.Len() > maxDiagram {
		return ""
	}
	return out.String()
}

func node(number int) string { return "i" + strconv.Itoa(max(number, 0)) }

// waitsFor lists the numbers of the issues that is depends on.
func waitsFor(is Issue, known map[string]int) string {
	const most = 6
	var out []string
	for i, name := range is.DependsOn {
		if i == most {
			out = append(out, "and "+strconv.Itoa(len(is.DependsOn)-most)+" more")
			break
		}
		if n, ok := known[name]; ok {
			out = append(out, strconv.Itoa(n))
		} else {
			out = append(out, text(name, 40))
		}
	}
	return strings.Join(out, ", ")
}
