package runtime

import "strings"

// Task is what the agent is to be told now: the prompt, or on a repair turn what
// was wrong with its answer. remembers says that the agent still knows the
// conversation; one that does not gets the prompt again, with what was answered.
func (c Call) Task(remembers bool) string {
	if c.Repair == nil {
		return c.Prompt
	}
	wrong := "That answer does not fit:\n- " + strings.Join(c.Repair.Errors, "\n- ") + "\nAnswer again, in whole, with these mistakes corrected."
	if remembers {
		return wrong
	}
	return c.Prompt + "\n\nThis was answered before:\n\n" + c.Repair.Previous + "\n\n" + wrong
}
