package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/slipway-dev/slipway/pipeline/graph"
)

// A task is an issue that ran: what its lane would have taken with nothing but
// its agents.
type task struct {
	issue   graph.Issue   // with its number and the dependencies that it waited for
	work    time.Duration // of its calls in the lane
	landing time.Duration // of the Merger's calls, after the lane
	failed  bool          // it did not land
}

// schedule is how long tasks take with so many lanes when starting, landing and
// deciding cost nothing: a list schedule in the order of the graph's frontier,
// which the conductor follows too.
func schedule(tasks []task, lanes int) (time.Duration, error) {
	issues := make([]graph.Issue, len(tasks))
	byName := map[string]task{}
	for i, t := range tasks {
		issues[i], byName[t.issue.Name] = t.issue, t
	}
	if len(tasks) == 0 {
		return 0, nil
	}
	g, err := graph.New(issues)
	if err != nil {
		return 0, err
	}
	// A lane that ends, or an issue that lands, at an instant.
	type event struct {
		at    time.Duration
		name  string
		lands bool
	}
	var now time.Duration
	var coming []event
	started, running, landed := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for {
		for len(running) < lanes {
			ready := g.Frontier(
				func(n string) bool { return started[n] },
				func(n string) bool { return running[n] },
				func(_, dependency string) bool { return landed[dependency] },
			)
			if len(ready) == 0 {
				break
			}
			name := ready[0].Name
			started[name], running[name] = true, true
			coming = append(coming, event{at: now + byName[name].work, name: name})
		}
		if len(coming) == 0 {
			return now, nil
		}
		slices.SortStableFunc(coming, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		next := coming[0]
		coming, now = coming[1:], next.at
		t := byName[next.name]
		switch {
		case next.lands:
			landed[next.name] = true
		case t.failed:
			delete(running, next.name)
		default:
			delete(running, next.name)
			coming = append(coming, event{at: now + t.landing, name: next.name, lands: true})
		}
		// What happens at the same instant is known before the next choice.
		for len(coming) > 0 && slices.ContainsFunc(coming, func(e event) bool { return e.at == now && e.lands }) {
			i := slices.IndexFunc(coming, func(e event) bool { return e.at == now && e.lands })
			landed[coming[i].name] = true
			coming = slices.Delete(coming, i, i+1)
		}
	}
}

// lowerBound is what no schedule can beat: the longest path, or all the work
// spread evenly over the lanes.
func lowerBound(tasks []task, lanes int) (time.Duration, error) {
	path, err := schedule(tasks, max(len(tasks), 1))
	if err != nil {
		return 0, err
	}
	var work time.Duration
	for _, t := range tasks {
		work += t.work
	}
	return max(path, work/time.Duration(lanes)), nil
}
