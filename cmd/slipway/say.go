package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

// A saying is a verb that tells a build something.
type saying struct {
	signal string // pipeline's word, which is also the verb
	what   string // what is said: HASH, TEXT or [TEXT]
	cmd    cobra.Command
}

var sayings = []saying{
	{pipeline.ApproveSignal, "[HASH]", cobra.Command{
		Short:   "Approve the plan that a build waits with",
		Long:    "Approve lets the build go on with exactly the plan that was shown. The hash names\nit, by at least 7 digits; without a hash the answer names it. It is refused when\nthe base moved since the plan was made.",
		Example: "  slipway approve b-1a2b3c4d 0123456789ab",
	}},
	{pipeline.ReviseSignal, "TEXT", cobra.Command{
		Short:   "Have the plan that a build waits with made anew",
		Long:    "Revise has the plan made anew with what you say. The new plan waits for an\napproval of its own.",
		Example: "  slipway revise b-1a2b3c4d \"one package is enough\"",
	}},
	{pipeline.RejectSignal, "[TEXT]", cobra.Command{
		Short:   "Refuse the plan that a build waits with; the build ends",
		Example: "  slipway reject b-1a2b3c4d\n  slipway reject b-1a2b3c4d \"this is two tickets\"",
	}},
	{pipeline.AnswerSignal, "TEXT", cobra.Command{
		Short:   "Answer what an agent asked",
		Long:    "Answer answers the questions that a build waits with; slipway status shows them.",
		Example: "  slipway answer b-1a2b3c4d \"a client is an account\"",
	}},
	{pipeline.SteerSignal, "TEXT", cobra.Command{
		Short:   "Tell the agents of an open build something before their next turn",
		Example: "  slipway steer b-1a2b3c4d \"leave the public API as it is\"",
	}},
}

// newSayings are the verbs that tell a build something.
func newSayings(o *options) (all []*cobra.Command) {
	for _, s := range sayings {
		cmd := s.cmd
		cmd.Use = s.signal + " BUILD " + s.what
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := oneBuild(cmd, args[:min(1, len(args))]); err != nil {
				return err
			}
			if s.what == "TEXT" && strings.TrimSpace(strings.Join(args[1:], " ")) == "" {
				return fmt.Errorf("%s wants a text: slipway %s", s.signal, cmd.Use)
			}
			if s.signal == pipeline.ApproveSignal && len(args) > 2 {
				return fmt.Errorf("%s wants one hash, and got %d", s.signal, len(args)-1)
			}
			return nil
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			said := pipeline.Said{Text: strings.Join(args[1:], " ")}
			if s.signal == pipeline.ApproveSignal {
				said = pipeline.Said{Hash: said.Text}
			}
			return o.say(cmd.Context(), args[0], s.signal, said)
		}
		all = append(all, &cmd)
	}
	return all
}

// say tells an open build something that it has a use for.
func (o *options) say(ctx context.Context, build, signal string, said pipeline.Said) error {
	return o.withJob(ctx, build, func(store queue.Store, conf config.Server, j queue.Job) error {
		if j.State.Finished() {
			return alreadyEnded(j)
		}
		account, err := pipeline.Read(ctx, store, j.ID)
		if err != nil {
			return environment(err)
		}
		why := pipeline.Refusal(account, signal, said)
		if why == "" && signal == pipeline.ApproveSignal {
			if why, err = o.approval(ctx, store, conf, j, said.Hash); err != nil {
				return err
			}
		}
		if why != "" {
			return fmt.Errorf("%s; see: slipway status %s", why, j.ID)
		}
		return o.send(ctx, store, j, signal, said)
	})
}

// approval says why the plan of a build cannot be approved by that hash.
func (o *options) approval(ctx context.Context, store queue.Store, conf config.Server, j queue.Job, hash string) (refusal string, err error) {
	if !isLocal(j) {
		// Whether the ticket is still the one that was planned is GitHub's to say.
		return "this build belongs to a server, and its ticket may have changed: approve it there", nil
	}
	var local localBuild
	if err := json.Unmarshal(j.Payload, &local); err != nil {
		return "", environment(err)
	}
	engine, err := app.NewEngine(conf, app.Agents{Environ: os.Environ()}, o.logger())
	if err != nil {
		return "", environment(err)
	}
	mirror, err := engine.Mirror(ctx, local.Request.Repo)
	if err != nil {
		return "", environment(err)
	}
	refusal, err = engine.Approval(ctx, store, pipeline.Local{Dir: local.Dir, Mirror: mirror}, local.Request, hash)
	return refusal, environment(err)
}

// sent is what was told to a build, in JSON.
type sent struct {
	Build string      `json:"build"`
	Sent  string      `json:"sent"`
	State queue.State `json:"state"` // of the job, before
}

// send tells a build something and prints where that shows.
func (o *options) send(ctx context.Context, store queue.Store, j queue.Job, signal string, said pipeline.Said) error {
	body, err := json.Marshal(said)
	if err != nil {
		return err
	}
	err = store.Send(ctx, j.ID, newSignal(signal, body))
	switch {
	case errors.Is(err, queue.ErrFinished):
		return alreadyEnded(j)
	case err != nil:
		return environment(err)
	case o.json:
		return json.NewEncoder(os.Stdout).Encode(sent{Build: j.ID, Sent: signal, State: j.State})
	case isLocal(j) && j.State != queue.Running:
		fmt.Printf("%s: %s sent; it goes on in the terminal that waits with it, else at: slipway resume %s\n", j.ID, signal, j.ID)
	default:
		fmt.Printf("%s: %s sent; follow it with: slipway status %s\n", j.ID, signal, j.ID)
	}
	return nil
}

// newSignal is a signal that no other process sends.
func newSignal(kind string, body json.RawMessage) queue.Signal {
	id := fmt.Sprintf("terminal-%d-%d", os.Getpid(), time.Now().UnixNano())
	return queue.Signal{ID: id, Kind: kind, Body: body, Reopen: kind == pipeline.ResumeSignal}
}

func alreadyEnded(j queue.Job) error {
	return fmt.Errorf("build %s has ended already; see: slipway status %s", j.ID, j.ID)
}

// isLocal reports whether the build is a terminal's own.
func isLocal(j queue.Job) bool { return strings.HasPrefix(j.Kind, "local/") }
