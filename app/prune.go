package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/queue"
)

// A Leftover is what an ended build or review left in the state directory.
type Leftover struct {
	Build       string    `json:"build"` // or the review
	Ended       time.Time `json:"ended"`
	Refs        []KeptRef `json:"refs"`
	Directories []string  `json:"directories"` // below the state directory
}

// A KeptRef is a ref of a build in a mirror, which is named by its path below
// the state directory.
type KeptRef struct {
	Mirror string `json:"mirror"`
	Name   string `json:"ref"`
}

// What a build leaves, each in a directory of its own name: artefacts, clones
// and worktrees, homes of its agents, what they said and did.
var buildDirectories = []string{"builds", "work", "homes", "transcripts", "recordings"}

// Leftovers lists what builds and reviews that ended before a time left in a state
// directory, in the order in which they ended. One that has not ended is never in
// it, nor is one that a comparison may still publish, nor one that the store does
// not know: it may be another store's.
func Leftovers(ctx context.Context, store queue.Store, stateDir string, before time.Time) ([]Leftover, error) {
	jobs, err := store.List(ctx, queue.Query{Kinds: append(pipeline.Kinds(), pipeline.KindReview, "local/"), Limit: math.MaxInt32})
	if err != nil {
		return nil, fmt.Errorf("list builds and reviews: %w", err)
	}
	mirrors, err := filepath.Glob(filepath.Join(stateDir, "mirrors", "*", "*.git"))
	if err != nil {
		return nil, fmt.Errorf("list mirrors: %w", err)
	}
	var all []Leftover
	open := map[string]bool{}
	for _, j := range jobs {
		open[j.ID] = !j.State.Finished()
	}
	for _, j := range jobs {
		if open[j.ID] || open[comparisonOf(j)] || !j.Updated.Before(before) || filepath.Base(j.ID) != j.ID {
			continue
		}
		l := Leftover{Build: j.ID, Ended: j.Updated, Refs: []KeptRef{}, Directories: []string{}}
		for _, dir := range buildDirectories {
			_, err := os.Lstat(filepath.Join(stateDir, dir, j.ID))
			switch {
			case err == nil:
				l.Directories = append(l.Directories, filepath.Join(dir, j.ID))
			case !errors.Is(err, fs.ErrNotExist):
				return nil, fmt.Errorf("look for what %s left: %w", j.ID, err)
			}
		}
		all = append(all, l)
	}
	for _, dir := range mirrors {
		if err := addRefs(ctx, stateDir, dir, all); err != nil {
			return nil, err
		}
	}
	all = slices.DeleteFunc(all, func(l Leftover) bool { return len(l.Refs)+len(l.Directories) == 0 })
	slices.SortStableFunc(all, func(a, b Leftover) int { return a.Ended.Compare(b.Ended) })
	return all, nil
}

// comparisonOf is the build that a contender waits for; empty for all others.
func comparisonOf(j queue.Job) string {
	var r pipeline.Request
	if json.Unmarshal(j.Payload, &r) != nil || r.Contender == nil {
		return ""
	}
	return r.Contender.Of
}

// addRefs adds the refs that a mirror holds of each build.
func addRefs(ctx context.Context, stateDir, dir string, all []Leftover) error {
	name, err := filepath.Rel(stateDir, dir)
	if err != nil {
		return fmt.Errorf("name the mirror %s: %w", dir, err)
	}
	mirror, err := repo.Open(ctx, dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	refs, err := mirror.Refs(ctx, "refs/slipway")
	if err != nil {
		return fmt.Errorf("look in %s: %w", name, err)
	}
	of := map[string][]KeptRef{}
	for _, r := range refs {
		build, _, _ := strings.Cut(strings.TrimPrefix(r.Name, "refs/slipway/"), "/")
		of[build] = append(of[build], KeptRef{Mirror: name, Name: r.Name})
	}
	for i := range all {
		all[i].Refs = append(all[i].Refs, of[all[i].Build]...)
	}
	return nil
}

// Remove removes the leftover from the state directory: the refs before the
// directories, so that what is still there can be listed again. A build that
// was taken up again since is left alone, and that is an error.
func (l Leftover) Remove(ctx context.Context, store queue.Store, stateDir string) error {
	jobs, err := store.List(ctx, queue.Query{IDs: []string{l.Build}})
	if err != nil {
		return fmt.Errorf("look at %s again: %w", l.Build, err)
	}
	if len(jobs) == 0 || !jobs[0].State.Finished() {
		return fmt.Errorf("%s was taken up again: nothing of it is removed", l.Build)
	}
	for _, ref := range l.Refs {
		mirror, err := repo.Open(ctx, filepath.Join(stateDir, ref.Mirror))
		if err != nil {
			return fmt.Errorf("open %s: %w", ref.Mirror, err)
		}
		if err := mirror.SetRef(ctx, ref.Name, "", repo.Any); err != nil {
			return fmt.Errorf("remove %s from %s: %w", ref.Name, ref.Mirror, err)
		}
	}
	for _, dir := range l.Directories {
		if err := repo.RemoveAll(ctx, filepath.Join(stateDir, dir)); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
	return nil
}
