package report

import (
	"strconv"
	"strings"
)

// subagents says, one line for each batch, how its slots stand.
func subagents(batches []Batch) section {
	s := section{what: "batch of subagents"}
	for _, b := range batches {
		var slots []string
		for i, slot := range b.Slots {
			if i == maxSlots {
				slots = append(slots, more(len(b.Slots)-i, "slot"))
				break
			}
			slots = append(slots, strings.TrimSpace(slotMarks[slot.State]+" "+text(slot.Type, 40)+" "+strings.ReplaceAll(slot.State, "_", " ")))
		}
		who := b.Call
		if who == "" {
			who = b.Batch
		}
		s.rows = append(s.rows, "- "+code(who, 100)+": "+strings.Join(slots, " · "))
	}
	if len(s.rows) > 0 {
		s.text = "**Subagents at work**\n"
	}
	return s
}

// maxSlots is how many slots of a batch are named.
const maxSlots = 16

var slotMarks = map[string]string{
	"queued": "◌", "starting": "◔", "running": "⏳", "waiting_approval": "✋",
	"completed": "✅", "failed": "❌", "timed_out": "⌛", "cancelled": "🚫", "skipped": "⏭",
}

// PermitChoices are what a person may type about a subagent that waits.
func PermitChoices(b Build, p Permit) []Choice {
	return []Choice{{b.Typed("approve", p.ID), "lets it start"}, {b.Typed("reject", p.ID), "skips it; the agent is told"}}
}

// permits lists the subagents that wait for a person's word, and what to type.
func permits(b Build) section {
	s := section{what: "subagent"}
	for _, p := range b.Permits {
		line := "- " + text(p.Type, 40) + " for " + code(p.Call, 100) + ", slot " + strconv.Itoa(p.Slot) + ": " + text(p.Description, 200)
		for _, c := range PermitChoices(b, p) {
			line += " · " + command(c.Command, 100) + " " + c.Does
		}
		s.rows = append(s.rows, line)
	}
	if len(s.rows) > 0 {
		s.text = "**Subagents that wait for your word**\n"
	}
	return s
}
