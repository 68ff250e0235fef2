package queue_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

// testimony is what the witness has written down.
type testimony struct {
	put   map[string]bool
	done  map[string]int // how often the store accepted it
	wrong []string
}

func readWitness(path string) (testimony, error) {
	seen := testimony{put: map[string]bool{}, done: map[string]int{}}
	file, err := os.Open(path)
	if err != nil {
		return seen, err
	}
	defer file.Close() //nolint:errcheck // opened to look at
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		id, _, _ := strings.Cut(rest, " ")
		switch what {
		case "put":
			seen.put[id] = true
		case "done":
			seen.done[id]++
		default:
			seen.wrong = append(seen.wrong, rest)
		}
	}
	return seen, lines.Err()
}

// lost says which job was acknowledged and is not there.
func (s testimony) lost(all []queue.Job) (id string, is bool) {
	there := map[string]bool{}
	for _, j := range all {
		there[j.ID] = true
	}
	for id := range s.put {
		if !there[id] {
			return id, true
		}
	}
	return "", false
}

// A turn is the time in which one worker recorded steps of one job.
type turn struct {
	job         string
	by          chaosStep
	first, last time.Time
}

func (t turn) String() string {
	return fmt.Sprintf("%s of attempt %d by %s from %s to %s", t.job, t.by.Attempt, t.by.Worker, t.first.Format(time.StampMicro), t.last.Format(time.StampMicro))
}

// judge looks at what is left: each job was done, and was done once; what was
// recorded was recorded by who held the job, and no two jobs of a key at a time.
func (c *crew) judge(s queue.Store, all []queue.Job) {
	c.t.Helper()
	seen, err := readWitness(c.orders.Witness)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, what := range seen.wrong {
		c.t.Error(what)
	}
	turns := map[string][]turn{}
	for _, j := range all {
		if j.State != queue.Done {
			c.t.Errorf("%s is %s: %s", j.ID, j.State, j.Cause)
		}
		if seen.done[j.ID] > 1 {
			c.t.Errorf("%s was accepted as done %d times", j.ID, seen.done[j.ID])
		}
		turns[j.Key] = append(turns[j.Key], c.turnsOf(s, j)...)
	}
	if len(seen.done) < c.orders.Jobs*9/10 { // who is killed right after the store's answer writes nothing down
		c.t.Errorf("only %d jobs are known to have been accepted as done", len(seen.done))
	}
	for key, list := range turns {
		slices.SortFunc(list, func(a, b turn) int { return a.first.Compare(b.first) })
		for i := 1; i < len(list); i++ {
			if list[i].first.Before(list[i-1].last) {
				c.t.Errorf("%s: %v and %v overlap", key, list[i-1], list[i])
			}
		}
	}
}

// turnsOf reads a job's journal: its steps, each once, in turns that follow one
// another.
func (c *crew) turnsOf(s queue.Store, j queue.Job) []turn {
	c.t.Helper()
	entries, err := s.Entries(c.t.Context(), j.ID, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	var out []turn
	for i, e := range entries {
		var by chaosStep
		if err := json.Unmarshal(e.Outcome, &by); err != nil {
			c.t.Fatal(err)
		}
		if e.Key != strconv.Itoa(i) {
			c.t.Errorf("%s: step %d has the key %s", j.ID, i, e.Key)
		}
		if len(out) == 0 || out[len(out)-1].by != by {
			if len(out) > 0 && out[len(out)-1].by.Attempt >= by.Attempt {
				c.t.Errorf("%s: %+v recorded after %+v", j.ID, by, out[len(out)-1].by)
			}
			out = append(out, turn{job: j.ID, by: by, first: e.At})
		}
		out[len(out)-1].last = e.At
	}
	if len(entries) != chaosSteps {
		c.t.Errorf("%s has %d steps, want %d", j.ID, len(entries), chaosSteps)
	}
	return out
}
