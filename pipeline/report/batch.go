package report

import "strings"

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
