package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A Replayed says whether a build that was run again came out the same.
type Replayed struct {
	Build       string       `json:"build"`
	Same        bool         `json:"same"`
	Entries     int          `json:"entries"`        // of the recorded journal
	Agents      int          `json:"agents"`         // of them, what agents answered
	Given       int          `json:"given"`          // of them, what was taken as it is recorded
	Tree        string       `json:"tree"`           // of the head, as recorded
	TreeNow     string       `json:"tree_now"`       // of the head that came out
	Left        string       `json:"left,omitempty"` // where the run left the recorded one, and did not go on
	Differences []Difference `json:"differences"`
}

// A Difference is one entry that did not come out as recorded.
type Difference struct {
	Key      string `json:"key"`
	What     string `json:"what"`               // input, outcome, commit, missing or new
	Recorded string `json:"recorded,omitempty"` // empty for new
	Now      string `json:"now,omitempty"`      // empty for missing
}

// missing is What of an entry that did not come.
const missing = "missing"

// A ReplayJob is a build to be run again.
type ReplayJob struct {
	Request Request
	Entries []step.Entry // its journal, to its end
	Strict  bool         // what agents were asked must be the same, too
}

// Replay runs a build again on this engine, whose agents play the build's
// recordings, and compares journals. The mirror of the engine's state holds the
// build's commits. What came from outside is taken from the journal: what people
// said, what the engine's commands printed, what the forge answered, and what
// timing decided. The engine decides all else anew.
func (e *Engine) Replay(ctx context.Context, job ReplayJob) (Replayed, error) {
	if len(job.Request.Targets) > 0 {
		return Replayed{}, fmt.Errorf("build %s is a comparison, which asks no agent: replay the build of a target; status names them", job.Request.Build)
	}
	if !slices.ContainsFunc(job.Entries, func(e step.Entry) bool { return e.Key == keyPin }) {
		return Replayed{}, fmt.Errorf("build %s ended before it had a base: there is nothing to replay", job.Request.Build)
	}
	job.Entries = slices.DeleteFunc(slices.Clone(job.Entries), ofSubagent)
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop()

	r := &replay{job: job, log: &step.Memory{}, chosen: map[string]json.RawMessage{}}
	r.script = step.NewScript(step.ScriptOptions{Entries: job.Entries, Given: fromOutside, Dated: dated, Chosen: r.choose})
	watch.Go(func() { r.script.Watch(ctx) })

	mirror, err := e.Mirror(ctx, job.Request.Repo)
	if err == nil {
		err = forget(ctx, mirror, job.Request.Build)
	}
	if err != nil {
		return Replayed{}, err
	}
	out := Replayed{Build: job.Request.Build, Entries: len(job.Entries)}
	err = r.run(ctx, e, mirror)
	out.Differences = r.differences()
	if err != nil && !r.departed(ctx, err, out.Differences) {
		return out, err
	}
	if err != nil {
		out.Left = err.Error()
	}
	for _, entry := range job.Entries {
		switch {
		case entry.Runtime != "":
			out.Agents++
		case fromOutside(entry) || step.IsChoice(entry):
			out.Given++
		}
	}
	if out.Tree, err = headTree(ctx, mirror, job.Entries); err == nil {
		out.TreeNow, err = headTree(ctx, mirror, r.log.Entries())
	}
	out.Same = out.Left == "" && len(out.Differences) == 0 && out.Tree == out.TreeNow
	return out, err
}

// ofSubagent finds what an agent's subagents left in the journal. The agent that
// asked them is played with what it made of that, and asks nobody.
func ofSubagent(e step.Entry) bool {
	key, _ := cutSegment(e.Key)
	return isSubagent(key) || strings.HasPrefix(key, keyPermit(""))
}

// forget removes the refs that the build left; its commits stay.
func forget(ctx context.Context, mirror *repo.Mirror, build string) error {
	refs, err := mirror.Refs(ctx, "refs/slipway/"+build)
	for _, r := range refs {
		err = errors.Join(err, mirror.SetRef(ctx, r.Name, "", repo.Any))
	}
	return err
}

// headTree is the tree of the integration branch at the end of a journal; empty
// where there is none.
func headTree(ctx context.Context, mirror *repo.Mirror, entries []step.Entry) (string, error) {
	fold := NewFold()
	for _, e := range entries {
		fold.Add(e)
	}
	head := fold.integrated()
	if head == "" {
		return "", nil
	}
	return mirror.Tree(ctx, head)
}

// fromOutside says which entries hold what the world answered. A replay does not
// ask again: the world has changed since.
func fromOutside(e step.Entry) bool {
	key, _ := cutSegment(e.Key)
	switch {
	case step.IsCall(e):
		return e.Runtime == "" // the engine's commands
	case step.IsChoice(e):
		return false
	case strings.HasPrefix(key, "ci-"):
		return !ciFixKey.MatchString(key)
	case strings.HasPrefix(key, "gate/"):
		return strings.Contains(key, "/approved")
	}
	return key == keyPin || strings.HasPrefix(key, "publish/")
}

var ciFixKey = regexp.MustCompile(`^ci-[0-9a-f]+/fix-[0-9]+$`)

// dated says which entries keep their time: the commits of a landing have it.
func dated(e step.Entry) bool {
	key, _ := cutSegment(e.Key)
	return step.IsChoice(e) && strings.HasPrefix(key, "land/")
}

// timed says of which choices the value is timing's as well.
func timed(key string) bool {
	key, _ = cutSegment(key)
	return slices.ContainsFunc([]string{"land/", "start/", "budget/"}, func(p string) bool { return strings.HasPrefix(key, p) }) ||
		strings.HasSuffix(key, "/estimate")
}

// replay is one replay at work.
type replay struct {
	job    ReplayJob
	script *step.Script
	log    *step.Memory

	mu     sync.Mutex
	chosen map[string]json.RawMessage // what the run would have chosen, by key
}

func (r *replay) choose(recorded step.Entry, own json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chosen[recorded.Key] = own
}

// run runs the build, claim after claim, to the end of the script.
func (r *replay) run(ctx context.Context, e *Engine, mirror *repo.Mirror) error {
	elsewhere := filepath.Join(e.State, "forge.git")
	if _, err := repo.Open(ctx, elsewhere); err != nil {
		return fmt.Errorf("make a place to publish to: %w", err)
	}
	for {
		before, later := r.signals()
		claim, stop := context.WithCancel(ctx)
		_, err := e.Run(claim, Job{
			Request: r.job.Request, Forge: Local{Dir: elsewhere, Mirror: mirror}, Before: before, Signals: say(claim, later), Day: r.day(),
			Extend: func(context.Context) error { return nil }, Builds: alone{},
			Open: func(ctx context.Context, o step.Options) (*step.Journal, error) {
				o.Script = r.script
				return r.log.Open(ctx, o)
			},
		})
		stop()
		if _, waits := errors.AsType[*Waiting](err); err != nil && !waits {
			return err
		}
		due, more := r.script.Next()
		if !more {
			return nil
		}
		if _, said := signalOf(due); !said {
			state := "has ended"
			if err != nil {
				state = "waits for a person or for CI"
			}
			return &step.Departure{Due: due.Key, Asked: []string{"nothing: it " + state}}
		}
	}
}

// alone is the queue of a build that is run again: whom it would tell of its end
// has heard it.
type alone struct{ Builds }

// Tell tells nobody.
func (alone) Tell(context.Context, string, Signal) error { return nil }

// departed reports whether an error is one of the build's and not of this
// machine: it left the script, or something came out differently before, and
// what timing decided was about something else.
func (r *replay) departed(ctx context.Context, err error, found []Difference) bool {
	if _, left := errors.AsType[*step.Departure](err); left {
		return true
	}
	return ctx.Err() == nil && slices.ContainsFunc(found, func(d Difference) bool { return d.What != missing })
}

// day is what the other builds of the installation left of the day, as far as
// the journal tells.
func (r *replay) day() agent.Day {
	if slices.ContainsFunc(r.job.Entries, spends) {
		return spentDay{}
	}
	return nil
}

// spends says whether an entry ends the build, or a lane of it, because a budget
// is spent. It may have been one that all builds share.
func spends(e step.Entry) bool {
	key, _ := cutSegment(e.Key)
	var s stopped
	return strings.HasPrefix(key, keyGiven("")) || key == keyStop && json.Unmarshal(e.Outcome, &s) == nil && s.Budget
}

// spentDay has room for the calls that there were, and for no other.
type spentDay struct{}

// Take refuses a call of which the journal does not tell.
func (spentDay) Take(ctx context.Context, _ agent.Use) error {
	if _, was := step.Retraced(ctx); was {
		return nil
	}
	return &agent.BudgetError{Bound: "the day", Limit: "what it was"}
}

// Settle has nothing to keep.
func (spentDay) Settle(context.Context, agent.Use, agent.Use) error { return nil }

// say sends signals to a claim, one after the other.
func say(ctx context.Context, signals []Signal) <-chan Signal {
	out := make(chan Signal)
	go func() {
		defer close(out)
		for _, s := range signals {
			select {
			case out <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// signals are what people said: before the present claim, and during it or later.
// What lets an ended build go on begins a claim of its own.
func (r *replay) signals() (before, later []Signal) {
	due, _ := r.script.Next()
	past := true
	for _, e := range r.job.Entries {
		s, said := signalOf(e)
		switch {
		case said && (past || e.Key == due.Key):
			before = append(before, s)
		case said && (s.Kind == PublishSignal || s.Kind == ResumeSignal && strings.HasSuffix(e.Key, "/"+keyResume)):
			return before, later
		case said:
			later = append(later, s)
		}
		past = past && e.Key != due.Key
	}
	return before, later
}

// signalOf is the signal that an entry records.
func signalOf(e step.Entry) (Signal, bool) {
	key, _ := cutSegment(e.Key)
	var s Signal
	var said Said
	if id, ok := strings.CutPrefix(key, keySignal("")); ok {
		var h heard
		if json.Unmarshal(e.Outcome, &h) != nil {
			return s, false
		}
		s, said = Signal{ID: id, Kind: h.Kind}, h.Said
	} else {
		var again resumed
		if key != keyResume || json.Unmarshal(e.Outcome, &again) != nil {
			return s, false
		}
		s, said = Signal{ID: again.Signal, Kind: ResumeSignal}, Said{By: again.By, Repo: again.Repo}
	}
	var err error
	s.Body, err = json.Marshal(said)
	return s, err == nil
}

// differences compares the journals, in the order of the recorded one.
func (r *replay) differences() []Difference {
	all := []Difference{}
	now := map[string]step.Entry{}
	for _, e := range r.log.Entries() {
		now[e.Key] = e
	}
	for _, was := range r.job.Entries {
		is, there := now[was.Key]
		delete(now, was.Key)
		if !there {
			all = append(all, Difference{Key: was.Key, What: missing, Recorded: shorten(was.Outcome)})
			continue
		}
		all = append(all, r.compare(was, is)...)
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		all = append(all, Difference{Key: key, What: "new", Now: shorten(now[key].Outcome)})
	}
	return all
}

func (r *replay) compare(was, is step.Entry) []Difference {
	var all []Difference
	note := func(what, recorded, now string) {
		if recorded != now {
			all = append(all, Difference{Key: was.Key, What: what, Recorded: recorded, Now: now})
		}
	}
	if r.job.Strict {
		note("input", was.Input, is.Input)
	}
	note("commit", was.Commit, is.Commit)
	before, after := was.Outcome, is.Outcome
	if own, chose := r.chosen[was.Key]; chose && !timed(was.Key) && !spends(was) {
		after = own
	}
	if was.Runtime != "" { // what an agent says is given; whether it counts is decided
		before, after = failureOf(before), failureOf(after)
	}
	if a, b := comparable(before), comparable(after); !bytes.Equal(a, b) {
		note("outcome", shorten(a), shorten(b))
	}
	return all
}

func failureOf(answer json.RawMessage) json.RawMessage {
	var a struct {
		Failure string `json:"failure"`
	}
	_ = json.Unmarshal(answer, &a) // what cannot be read names none
	text, _ := json.Marshal(a)
	return text
}

// clocks are the fields of outcomes that tell of time.
var clocks = []string{"since", "expires", "elapsed_ns", "took", "took_ns", "duration_ns"}

// comparable is an outcome without what a clock said, with its keys in order.
func comparable(outcome json.RawMessage) []byte {
	var value any
	d := json.NewDecoder(bytes.NewReader(outcome))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return outcome
	}
	text, err := json.Marshal(timeless(value))
	if err != nil {
		return outcome
	}
	return text
}

func timeless(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			if slices.Contains(clocks, key) {
				delete(v, key)
				continue
			}
			v[key] = timeless(field)
		}
	case []any:
		for i := range v {
			v[i] = timeless(v[i])
		}
	}
	return value
}

// shorten cuts what is quoted of an outcome.
func shorten(outcome []byte) string {
	const most = 400
	if len(outcome) <= most {
		return string(outcome)
	}
	return strings.ToValidUTF8(string(outcome[:most]), "") + "…"
}
