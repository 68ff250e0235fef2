// Package inbox takes GitHub's webhooks in. A delivery is either refused for a
// stated reason or written to the durable store before it is acknowledged; what
// it means is decided later, by whoever claims the job.
//
// The order of the checks is part of the promise: method, size, delivery id,
// signature, and only then JSON. Nothing that an unsigned sender wrote is ever
// parsed. A delivery that comes again is acknowledged again and changes nothing.
package inbox

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

// Kind is the kind of the jobs that the inbox puts.
const Kind = "delivery"

// MaxBody is GitHub's cap on a delivery, in bytes.
const MaxBody = 25 << 20

// storeTimeout leaves room within the ten seconds after which GitHub gives up.
const storeTimeout = 8 * time.Second

// A Delivery is the payload of a delivery job; the job's ID is GitHub's GUID.
type Delivery struct {
	Event string          `json:"event"`
	Body  json.RawMessage `json:"body"`
}

// Store is where deliveries go.
type Store interface {
	Put(ctx context.Context, j queue.Job) (open queue.Job, added bool, err error)
}

// Inbox is the handler of POST /webhook.
type Inbox struct {
	store   Store
	secrets [][]byte
	log     *slog.Logger
}

// New returns an inbox that accepts deliveries signed with any of the secrets;
// two are valid while one is rotated. Without a secret, or with an empty one,
// anybody could sign, so that is refused.
func New(store Store, secrets []string, log *slog.Logger) (*Inbox, error) {
	if len(secrets) == 0 {
		return nil, errors.New("webhook secret: at least one is needed")
	}
	in := &Inbox{store: store, log: log}
	for i, s := range secrets {
		if strings.TrimSpace(s) == "" {
			return nil, fmt.Errorf("webhook secret %d of %d: must not be empty", i+1, len(secrets))
		}
		in.secrets = append(in.secrets, []byte(s))
	}
	return in, nil
}

// ServeHTTP answers 202 when the delivery is stored, 4xx when it is refused and
// 500 when the store could not take it, which GitHub records as failed.
func (in *Inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, event := r.Header.Get("X-GitHub-Delivery"), r.Header.Get("X-GitHub-Event")
	status, reason := in.take(w, r, id, event)
	level := slog.LevelInfo
	switch {
	case status >= 500:
		level = slog.LevelError
	case status >= 400:
		level = slog.LevelWarn
	}
	in.log.Log(r.Context(), level, "webhook", "delivery", clip(id), "event", clip(event), "status", status, "reason", reason)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, reason+"\n")
}

// take decides on one delivery and says why.
func (in *Inbox) take(w http.ResponseWriter, r *http.Request, id, event string) (status int, reason string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, "only POST is accepted"
	}
	tooLarge := "the body is larger than " + strconv.Itoa(MaxBody) + " bytes"
	if r.ContentLength > MaxBody {
		return http.StatusRequestEntityTooLarge, tooLarge
	}
	if !token(id) || !token(event) {
		return http.StatusBadRequest, "X-GitHub-Delivery and X-GitHub-Event are needed: 1 to 100 letters, digits, dashes and underscores"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return http.StatusRequestEntityTooLarge, tooLarge
		}
		return http.StatusBadRequest, "the body could not be read"
	}
	if !in.signed(body, r.Header.Get("X-Hub-Signature-256")) {
		return http.StatusUnauthorized, "X-Hub-Signature-256 is missing or wrong"
	}
	job, err := jobOf(id, event, body)
	if err != nil {
		return http.StatusBadRequest, "the body is not JSON; set the webhook's content type to application/json"
	}
	// Once the signature is good the delivery is ours to keep, even if the
	// sender hangs up while it is written.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTimeout)
	defer cancel()
	_, added, err := in.store.Put(ctx, job)
	if err != nil {
		in.log.ErrorContext(ctx, "store delivery", "delivery", id, "event", event, "error", err)
		return http.StatusInternalServerError, "the delivery could not be stored"
	}
	if !added {
		return http.StatusAccepted, "known already"
	}
	return http.StatusAccepted, "accepted"
}

// signed compares in constant time, with every secret whichever matches.
func (in *Inbox) signed(body []byte, header string) bool {
	hexed, ok := strings.CutPrefix(header, "sha256=")
	if !ok {
		return false
	}
	got, err := hex.DecodeString(hexed)
	if err != nil {
		return false
	}
	match := false
	for _, secret := range in.secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write(body)
		if hmac.Equal(mac.Sum(nil), got) {
			match = true
		}
	}
	return match
}

// envelope is the little that intake reads of a body.
type envelope struct {
	Installation struct {
		ID int64 `json:"id"`
	} `json:"installation"`
	Repository struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
	Issue       numbered `json:"issue"`
	PullRequest numbered `json:"pull_request"`
}

type numbered struct {
	Number int `json:"number"`
}

// jobOf makes the job of a delivery. Its key is the thread that it belongs to,
// so that deliveries of one thread are handled one by one.
func jobOf(id, event string, body []byte) (queue.Job, error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		// An envelope of another shape is still a delivery; only what is not
		// JSON at all is none.
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
			return queue.Job{}, err
		}
	}
	job := queue.Job{ID: id, Kind: Kind, Key: e.Repository.FullName}
	if e.Installation.ID != 0 {
		job.Tenant = strconv.FormatInt(e.Installation.ID, 10)
	}
	if n := max(e.Issue.Number, e.PullRequest.Number); n > 0 && job.Key != "" {
		job.Key += "#" + strconv.Itoa(n)
	}
	var err error
	job.Payload, err = json.Marshal(Delivery{Event: event, Body: body})
	return job, err
}

// token reports whether a header's value is one of the short words that GitHub
// sends.
func token(s string) bool {
	if s == "" || len(s) > 100 {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			return false
		}
	}
	return true
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100]
	}
	return s
}
