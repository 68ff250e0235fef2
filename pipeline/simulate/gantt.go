package simulate

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// The measures of a drawing, in pixels.
const (
	rowHeight  = 16
	labelWidth = 220
	plotWidth  = 1000
	topMargin  = 72
	margin     = 16
)

// legend has the kinds in the order in which they are drawn, longest first.
var legend = []struct {
	kind BarKind
	text string
}{
	{InLane, "engine"}, {Landing, "landing"}, {Coding, "coder"}, {Judging, "review"}, {Mending, "merger"}, {Advice, "advisor"},
}

// palette names every colour once; the second block is for dark pages.
const palette = `
text { font: 11px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 14px; font-weight: 600; }
.page { fill: #ffffff; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.lane { fill: #afb8c1; }
.landing { fill: #bf8700; }
.coder { fill: #0969da; }
.reviewer { fill: #8250df; }
.merger { fill: #cf222e; }
.advisor { fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .page { fill: #0d1117; }
  .grid { stroke: #30363d; }
  .lane { fill: #484f58; }
  .landing { fill: #d29922; }
  .coder { fill: #58a6ff; }
  .reviewer { fill: #bc8cff; }
  .merger { fill: #ff7b72; }
  .advisor { fill: #3fb950; }
}
`

// Gantt draws a result as SVG: one row for each issue, its lane with the agents
// at work in it and its landing, over a time axis.
func Gantt(w io.Writer, r Result) error {
	out := bufio.NewWriter(w) // keeps the first error for Flush
	height := topMargin + rowHeight*len(r.Lanes) + margin
	width := labelWidth + plotWidth + 2*margin
	put := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 %d %d" width="%d" height="%d">`+"\n", width, height, width, height)
	put("<title>%s</title>\n<style>%s</style>\n", escape("Simulation of "+r.Name), palette)
	put(`<rect class="page" width="%d" height="%d"/>`+"\n", width, height)
	put(`<text class="title" x="%d" y="22">%s</text>`+"\n", margin, escape(fmt.Sprintf(
		"%s: %.2f s, bound %.2f s, ratio %.3f", r.Name, seconds(r.MakespanMS), seconds(r.BoundMS), r.Ratio)))
	for i, entry := range legend {
		x := margin + 90*i
		put(`<rect class="%s" x="%d" y="32" width="12" height="10"/><text x="%d" y="41">%s</text>`+"\n", entry.kind, x, x+17, entry.text)
	}
	all := extent(r)
	at := func(d time.Duration) float64 { return labelWidth + margin + plotWidth*float64(d)/float64(all) }
	for tick, every := time.Duration(0), grid(all); tick <= all; tick += every {
		put(`<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, at(tick), topMargin-6, at(tick), height-margin)
		put(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", at(tick), topMargin-10, tick)
	}
	for i, l := range r.Lanes {
		y := topMargin + rowHeight*i
		put(`<text x="%d" y="%d">%s</text>`+"\n", margin, y+11, escape(fmt.Sprintf("%02d %s", l.Number, shortened(l.Name))))
		for _, entry := range legend {
			for _, b := range l.Bars {
				if b.Kind == entry.kind {
					put(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s</title></rect>`+"\n",
						b.Kind, at(b.From), y+2, max(at(b.To)-at(b.From), 0.5), rowHeight-4,
						escape(fmt.Sprintf("%s %s: %s", l.Name, entry.text, (b.To-b.From).Round(time.Millisecond))))
				}
			}
		}
	}
	put("</svg>\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("draw the simulation: %w", err)
	}
	return nil
}

func seconds(ms int64) float64 { return float64(ms) / 1000 }

// extent is the end of the last bar.
func extent(r Result) time.Duration {
	all := time.Millisecond // an axis needs a length
	for _, l := range r.Lanes {
		for _, b := range l.Bars {
			all = max(all, b.To)
		}
	}
	return all
}

// grid is the distance of two ticks such that there are five to twelve.
func grid(all time.Duration) time.Duration {
	every := time.Millisecond
	for {
		for _, step := range []time.Duration{1, 2, 5} {
			if all <= 12*step*every {
				return step * every
			}
		}
		every *= 10
	}
}

// shortened is a name that fits beside the plot.
func shortened(name string) string {
	if len(name) > 30 {
		return name[:29] + "…"
	}
	return name
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a builder takes everything
	return b.String()
}
