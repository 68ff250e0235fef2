package handlers_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// contend puts a contender of the world's build on the shelf, as the newest job.
func (w *world) contend() (build string) {
	w.Helper()
	r := w.request()
	r.Contender, r.Build = &pipeline.Contender{Of: r.Build, Target: "codex"}, "b-c0ffeec0ffee"
	payload, err := json.Marshal(r)
	if err != nil {
		w.Fatal(err)
	}
	w.shelf.jobs = append(w.shelf.jobs, queue.Job{ID: r.Build, Kind: pipeline.KindBuild, Key: r.Build, State: queue.Queued, Payload: payload})
	return r.Build
}

func TestACommentQueuesAComparison(t *testing.T) {
	w := newWorld(t)
	w.deliver(guid, commented(maintainer, "/build --targets codex,open_code:openai/gpt-5@high quickly"))
	if r := w.request(); !slices.Equal(r.Targets, []string{"codex", "open_code:openai/gpt-5@high"}) || r.Text != "quickly" {
		t.Errorf("request %+v", r)
	}
	if len(w.shelf.jobs) != 1 || w.shelf.jobs[0].Once != "o/r#12" || w.shelf.jobs[0].Kind != pipeline.KindComparison {
		t.Errorf("jobs %+v", w.shelf.jobs)
	}
}

// Whatever is said on a ticket is said to the comparison, which hands it on.
func TestNobodySpeaksToAContender(t *testing.T) {
	for name, say := range map[string]func(w *world, contender string){
		"the ticket is closed": func(w *world, _ string) {
			w.hub.gone = map[int]forge.Gone{12: {Why: "the ticket was closed"}}
			if err := w.h.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"the check of the chosen one is asked for again": func(w *world, contender string) {
			e := pressing(maintainer, "rerequested", "")
			e.Run.ExternalID = contender + ":c0ffee"
			w.press(guid, e)
		},
		"in a repository of another name": func(w *world, _ string) {
			w.shelf.jobs[0].Key, w.shelf.jobs[0].Once = "o/former#12", "o/former#12"
			w.deliver(guid, commented(maintainer, "/resume"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldAt(t, config.Chat{}, report.Failed, nil)
			comparison := w.request().Build
			w.shelf.jobs[0].Kind = pipeline.KindComparison
			contender := w.contend()
			if name == "the ticket is closed" {
				w.shelf.jobs[0].State = queue.Parked
			}
			say(w, contender)
			if len(w.shelf.signals[comparison]) != 1 || len(w.shelf.signals[contender]) > 0 {
				t.Errorf("told %+v", w.shelf.signals)
			}
		})
	}
}
