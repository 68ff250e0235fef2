package app

import (
	"context"
	"net/http"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

// probeTime is how long a probe waits for the store.
const probeTime = 2 * time.Second

// addProbes adds what orchestrators ask. /healthz answers as long as the process
// does: nothing that is wrong elsewhere is mended by a restart, which would cost
// the agent calls that run. /readyz answers while the store does too: without it
// no webhook can be taken in.
func (a *App) addProbes(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // the prober has gone: nobody to tell
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTime)
		defer cancel()
		if _, err := a.store.List(ctx, queue.Query{Limit: 1}); err != nil {
			http.Error(w, "the store does not answer", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
}
