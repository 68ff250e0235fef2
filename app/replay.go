package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/queue"
)

// An EndedBuild is a build that can be run again from its recordings.
type EndedBuild struct {
	Request    pipeline.Request
	Entries    []queue.Entry // its journal, to its end
	Recordings []runtime.Recording
	Runtime    string // that ran every role, whatever is configured; empty: as configured
}

// recordingsOf is where the agents of a build are recorded.
func recordingsOf(stateDir, build string) string { return filepath.Join(stateDir, "recordings", build) }

// Recordings reads what the agents of a build did, which is there where the
// configuration had record on.
func Recordings(conf config.Server, build string) ([]runtime.Recording, error) {
	dir := recordingsOf(conf.StateDir, build)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("build %s was not recorded: that takes record: true in the configuration, or SLIPWAY_RECORD=true, while it runs", build)
	}
	return runtime.ReadRecordings(os.DirFS(dir))
}

// Replay runs a build again and compares what came out with its journal. It
// works in a temporary directory, on a copy of the mirror, and leaves the state
// directory, the repository and the forge alone. Where strict is set, what the
// agents are asked must be what they were asked.
func Replay(ctx context.Context, conf config.Server, b EndedBuild, strict bool, log *slog.Logger) (out pipeline.Replayed, err error) {
	scratch, err := os.MkdirTemp("", "slipway-replay-")
	if err != nil {
		return out, fmt.Errorf("make a place to replay in: %w", err)
	}
	defer func() { err = errors.Join(err, repo.RemoveAll(context.WithoutCancel(ctx), scratch)) }()

	mirror := filepath.Join("mirrors", b.Request.Repo.Owner, b.Request.Repo.Name+".git")
	if err := os.CopyFS(filepath.Join(scratch, mirror), os.DirFS(filepath.Join(conf.StateDir, mirror))); err != nil {
		return out, fmt.Errorf("copy the commits of the build: %w", err)
	}
	conf.StateDir, conf.Record = scratch, false
	engine, err := NewEngine(conf, Agents{Runtime: replayRuntime, Recordings: atOnce(b.Recordings), Strict: strict}, log)
	if err != nil {
		return out, err
	}
	replay := engine.Runtime
	engine.Runtime = func(ctx context.Context, _ string) (runtime.Runtime, error) { return replay(ctx, replayRuntime) }
	engine.Only = b.Runtime
	return engine.Replay(ctx, pipeline.ReplayJob{Request: b.Request, Entries: b.Entries, Strict: strict})
}

// atOnce are recordings that take no time.
func atOnce(recordings []runtime.Recording) []runtime.Recording {
	all := slices.Clone(recordings)
	for i, r := range all {
		all[i].DelayMS = 0
		if r.Error != nil {
			failure := *r.Error
			failure.AfterMS = 0
			all[i].Error = &failure
		}
	}
	return all
}
