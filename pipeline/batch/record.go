package batch

// State is where a slot, or a whole batch, stands.
type State string

// The states of a slot; from Completed on they are final.
const (
	Queued          State = "queued"
	Starting        State = "starting"
	Running         State = "running"
	WaitingApproval State = "waiting_approval"
	Completed       State = "completed"
	Failed          State = "failed"
	TimedOut        State = "timed_out"
	Canceled        State = "cancelled"
	Skipped         State = "skipped"
)

// Final reports whether a slot in this state has ended.
func (s State) Final() bool {
	switch s {
	case Completed, Failed, TimedOut, Canceled, Skipped:
		return true
	}
	return false
}

// A Record is the account of one slot.
type Record struct {
	Slot       int    `json:"slot"` // index of the task
	Type       string `json:"subagent_type"`
	State      State  `json:"state"`
	Error      string `json:"error,omitempty"`
	Usage      Usage  `json:"usage,omitzero"`
	CostMicros int64  `json:"cost_micros,omitempty"` // millionths of a US dollar
	Transcript string `json:"transcript,omitempty"`
}

// An Event is a record that has changed. Call, Batch, Slot and Seq identify it:
// an event that comes twice is the same one.
type Event struct {
	Call  string `json:"call,omitempty"`
	Batch string `json:"batch,omitempty"`
	Seq   int    `json:"seq"` // from 1, without gaps within a slot
	Record
}

// Usage counts tokens.
type Usage struct {
	Input      int64 `json:"input_tokens,omitempty"`
	Output     int64 `json:"output_tokens,omitempty"`
	CacheRead  int64 `json:"cache_read_tokens,omitempty"`
	CacheWrite int64 `json:"cache_write_tokens,omitempty"`
}

func (u *Usage) add(v Usage) {
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheWrite += v.CacheWrite
}

// A Receipt counts how the planned slots ended.
type Receipt struct {
	Planned   int `json:"planned"`
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	TimedOut  int `json:"timed_out"`
	Canceled  int `json:"cancelled"`
	Skipped   int `json:"skipped"`
}

// Whole reports that every planned slot completed. Only then does finding
// nothing mean that there is nothing.
func (r Receipt) Whole() bool { return r.Planned == r.Completed }

func receipt(records []Record) Receipt {
	r := Receipt{Planned: len(records)}
	for _, record := range records {
		switch record.State {
		case Completed:
			r.Completed++
		case Failed:
			r.Failed++
		case TimedOut:
			r.TimedOut++
		case Canceled:
			r.Canceled++
		case Skipped:
			r.Skipped++
		}
	}
	return r
}

// StatusOf is the state of a batch with these slots, finished or not: what
// still goes on first, then what went wrong.
func StatusOf(records []Record) State {
	status := Completed
	for _, record := range records {
		if s := record.State.ofBatch(); rank[s] < rank[status] {
			status = s
		}
	}
	return status
}

// rank orders the states of a batch: the lowest among the slots is its own.
var rank = map[State]int{WaitingApproval: 0, Running: 1, Canceled: 2, Failed: 3, Completed: 4}

// ofBatch is what a slot's state means for its batch.
func (s State) ofBatch() State {
	switch s {
	case Queued, Starting:
		return Running
	case TimedOut, Skipped:
		return Failed
	}
	return s
}
