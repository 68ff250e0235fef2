package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/step"
)

// ReserveKey begins the key of every choice by which a Budget sets something
// aside for a call: budget/<key of the call>, then budget/<key>/2 and so on.
const ReserveKey = "budget/"

// ErrBudget refuses a call that could pass a bound. What wraps it is a
// *BudgetError.
var ErrBudget = errors.New("the budget does not cover another agent call")

// A BudgetError says which bound has no room for another call.
type BudgetError struct {
	Bound string    // as it is called where a person sets it: limits.usd_per_build
	Limit string    // its value with its unit: $25, 5000 calls
	Reset time.Time // when there may be room again; zero: not by itself
}

// Error names the bound, its value and the time.
func (e *BudgetError) Error() string {
	text := fmt.Sprintf("%v: %s is %s", ErrBudget, e.Bound, e.Limit)
	if !e.Reset.IsZero() {
		text += "; there may be room again at " + e.Reset.UTC().Format("2006-01-02 15:04 UTC")
	}
	return text
}

// Unwrap is ErrBudget.
func (e *BudgetError) Unwrap() error { return ErrBudget }

// A Budget bounds what one build spends. Before a call starts, a reserve for it
// is in the journal; a call starts only if all costs and all reserves stay
// within Micros. The recorded cost replaces the reserve.
//
// The first call makes the Budget read the journal: costs of recorded calls are
// charged, and so is the reserve of a call without a record. That call vanished
// in a kill and nobody knows what it cost, so its reserve stays charged for
// good: asked again, the call gets a reserve of its own. The same goes for a
// call that came back with an error, which is not recorded. In the process that
// saw it, only what the runtime reported is charged; who reads the journal
// later cannot tell it from a kill.
//
// A Budget serves one journal. Its exported fields are set once and not changed.
type Budget struct {
	Micros   int64    // the whole build, in micro-dollars; 0 means no bound
	Bound    string   // where a person sets Micros; empty means limits.usd_per_build
	PerCall  int64    // the reserve of a role's first call, and the most of any, in micro-dollars
	Closing  int64    // the part of Micros that only Closers draw on
	Closers  []string // the names of the roles that end a build
	MaxCalls int      // calls of the build, started ones; 0 means no bound
	Day      Day      // what the build shares with others; nil means no bound

	mu       sync.Mutex // holds what follows
	read     bool       // the journal was
	charged  int64      // costs, and reserves that are open or whose call vanished
	open     int64      // the part of charged that running calls hold
	calls    int
	reserves map[string]int   // by key of the call: how many choices name it
	highest  map[string]int64 // by role: what its dearest recorded call cost
	settled  chan struct{}    // closed, and made anew, when a call gives up what it held
}

// reserved is the choice that is recorded before a call starts, and again
// before a further try of it when an earlier one has cost something.
type reserved struct {
	Call    string `json:"call"`            // its key
	Reserve int64  `json:"reserve"`         // of the next try, in micro-dollars
	Spent   int64  `json:"spent,omitempty"` // by the tries before it; not 0: this takes the place of the reserve before
}

// bounded reports whether there is a bound that the journal has to remember
// reserves for.
func (b *Budget) bounded() bool { return b.Micros > 0 || b.MaxCalls > 0 }

// recall reads the journal, once. The caller holds mu.
func (b *Budget) recall(j *step.Journal) error {
	if b.read {
		return nil
	}
	var charged int64
	calls, reserves, highest := 0, map[string]int{}, map[string]int64{}
	recorded := map[string]bool{}
	for _, e := range j.Entries() {
		charged += e.CostMicros
		if e.Runtime == "" {
			continue // no agent's
		}
		var a Answer
		if err := json.Unmarshal(e.Outcome, &a); err != nil {
			return fmt.Errorf("read the role of %s: %w", e.Key, err)
		}
		recorded[e.Key] = true
		highest[a.Role] = max(highest[a.Role], e.CostMicros)
	}
	newest := map[string]int64{} // what the newest run of a call may have cost
	for _, e := range j.Choices() {
		if !strings.HasPrefix(e.Key, ReserveKey) {
			continue
		}
		var r reserved
		if err := json.Unmarshal(e.Outcome, &r); err != nil {
			return fmt.Errorf("read the reserve %s: %w", e.Key, err)
		}
		reserves[r.Call]++
		if r.Spent == 0 { // a run begins: the one before it vanished
			calls++
			charged += newest[r.Call]
		}
		newest[r.Call] = r.Spent + r.Reserve
	}
	for call, micros := range newest {
		if !recorded[call] {
			charged += micros
		}
	}
	b.charged, b.calls, b.reserves, b.highest = charged, calls, reserves, highest
	b.settled, b.read = make(chan struct{}), true
	return nil
}

// reserveOf is what is set aside for a call of the role: half as much again as
// its dearest call so far. The caller holds mu.
func (b *Budget) reserveOf(role string) int64 {
	highest := b.highest[role]
	if highest == 0 {
		return b.PerCall // it was not asked before, or it has no price
	}
	return min(highest+(highest+1)/2, b.PerCall)
}

// room is what the role may still have charged. The caller holds mu.
func (b *Budget) room(role string) int64 {
	if slices.Contains(b.Closers, role) {
		return b.Micros - b.charged
	}
	return b.Micros - b.Closing - b.charged
}

// spentOut is the refusal of a call of the role.
func (b *Budget) spentOut(role string) error {
	bound := b.Bound
	if bound == "" {
		bound = "limits.usd_per_build"
	}
	limit := dollars(b.Micros)
	if b.Closing > 0 && !slices.Contains(b.Closers, role) {
		limit += ", of which " + dollars(b.Closing) + " are kept for verifying and publishing"
	}
	return &BudgetError{Bound: bound, Limit: limit}
}

// dollars is an exact amount.
func dollars(micros int64) string {
	return "$" + strconv.FormatFloat(float64(micros)/1e6, 'f', -1, 64)
}
