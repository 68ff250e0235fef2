package pipeline

import (
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

func TestABuildDoesNotGoOnByAJournalThatItCannotRead(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	if _, err := w.log.Append(t.Context(), w.log.Claim(), step.Entry{Key: keyPlan, Outcome: []byte(`{"prd":7}`)}); err != nil {
		t.Fatal(err)
	}
	b, err := w.run()
	if err == nil || !strings.Contains(err.Error(), "read plan/kept") || b.State != report.State("") {
		t.Errorf("%s, %v", b.State, err)
	}
}
