package native_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

func wantFailure(t *testing.T, err error, class runtime.Class, reason string) {
	t.Helper()
	failure, ok := errors.AsType[*runtime.Error](err)
	if !ok || failure.Class != class || !strings.Contains(failure.Reason, reason) {
		t.Errorf("Run = %v, want a %s failure about %q", err, class, reason)
	}
}
