package githubsim

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// A delivery is one attempt to send a webhook; its payload is a file. Only
// Deliver attempts it.
type delivery struct {
	ID           int64         `json:"id"`
	GUID         string        `json:"guid"`
	App          int64         `json:"app"`
	Installation int64         `json:"installation"`
	Repo         int64         `json:"repo"`
	Event        string        `json:"event"`
	Action       string        `json:"action"`
	Redelivery   bool          `json:"redelivery"`
	Queued       time.Time     `json:"queued"`
	Sent         *time.Time    `json:"sent"` // nil until attempted
	Duration     time.Duration `json:"duration"`
	Status       string        `json:"status"`
	Code         int           `json:"code"`
	Answer       string        `json:"answer"` // body of the receiver's answer, its first 4 KiB
	Held         bool          `json:"held"`   // waits until the one after it has gone
	Judged       bool          `json:"judged"` // a fault was looked for
}

// A Delivery is an attempt to send a webhook, as the set-up side lists it.
type Delivery struct {
	ID         int64  `json:"id"`
	GUID       string `json:"guid"`
	Event      string `json:"event"`
	Action     string `json:"action,omitempty"`
	Redelivery bool   `json:"redelivery"`
	Pending    bool   `json:"pending"`
	Status     string `json:"status"`
	StatusCode int    `json:"status_code"`
}

// enqueue puts a payload into the outbox of an App. The caller holds mu and
// commits.
func (s *Server) enqueue(a *app, i *installation, r *repo, event, action string, payload []byte) error {
	d := &delivery{ID: s.state.next(), GUID: newGUID(), App: a.ID, Event: event, Action: action, Queued: s.now()}
	if i != nil {
		d.Installation = i.ID
	}
	if r != nil {
		d.Repo = r.ID
	}
	if err := writeFile(s.payloadPath(d), payload); err != nil {
		return err
	}
	s.state.Deliveries = append(s.state.Deliveries, d)
	return nil
}

func (s *Server) payloadPath(d *delivery) string {
	return filepath.Join(s.dir, "webhooks", d.GUID+".json")
}

func (s *Server) payload(d *delivery) ([]byte, error) {
	raw, err := os.ReadFile(s.payloadPath(d))
	if err != nil {
		return nil, fmt.Errorf("read the payload of webhook %s: %w", d.GUID, err)
	}
	return raw, nil
}

// Deliver sends the queued webhooks, one after the other, until ctx ends, and
// wakes the scripts of CI. Run includes it.
func (s *Server) Deliver(ctx context.Context) {
	for {
		for s.deliverNext(ctx) {
		}
		due, stop := s.alarm()
		select {
		case <-ctx.Done():
			stop()
			return
		case <-s.kick:
		case <-due:
			if err := s.catchSteps(ctx); err != nil {
				s.log.Error("scripted CI", "error", err)
			}
		}
		stop()
	}
}

// deliverNext attempts the webhook whose turn it is, if there is one.
func (s *Server) deliverNext(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	d, a, lost := s.pick()
	if d == nil {
		return false
	}
	payload, err := s.payload(d)
	if err != nil {
		s.log.Error("webhook not sent", "guid", d.GUID, "error", err)
	}
	sent, start := s.now(), time.Now()
	outcome := unreachable
	if !lost && err == nil {
		header := hookHeader(&a, d, payload)
		s.observed(Exchange{Method: http.MethodPost, URL: a.WebhookURL, RequestHeader: header, Request: payload, Event: d.Event, GUID: d.GUID})
		outcome = s.send(ctx, a.WebhookURL, header, payload)
		if ctx.Err() != nil && outcome == unreachable {
			return false // the server stops: it stays queued for the next process
		}
	}
	err = s.change(func(*state) error {
		d.Sent, d.Duration, d.Held = &sent, time.Since(start), false
		d.Status, d.Code, d.Answer = outcome.status, outcome.code, outcome.answer
		return nil
	})
	if err != nil {
		s.log.Error("outcome of a webhook not saved", "guid", d.GUID, "error", err)
	}
	s.log.Debug("webhook", "event", d.Event, "action", d.Action, "guid", d.GUID, "status", outcome.code)
	return true
}

// pick finds the webhook whose turn it is, with its App as it stands, and lets
// a fault act on it; lost means that it must not be sent.
func (s *Server) pick() (d *delivery, a app, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if d = s.turn(); d == nil {
			return nil, a, false
		}
		a = *s.state.app(d.App)
		if d.Judged {
			return d, a, false
		}
		d.Judged = true
		switch s.hookFault(d.Event, d.Action).Kind {
		case FaultDelay:
			d.Held = true
			continue // another's turn
		case FaultRepeat:
			twin := s.again(d)
			twin.Redelivery = d.Redelivery
		case FaultLose:
			lost = true
		}
		return d, a, lost
	}
}

// turn is the oldest webhook that waits, but for the held ones, whose turn
// comes when a later one has gone. The caller holds mu.
func (s *Server) turn() *delivery {
	ready := find(s.state.Deliveries, func(d *delivery) bool { return d.Sent == nil && d.Held && s.followed(d) })
	if ready != nil {
		return ready
	}
	return find(s.state.Deliveries, func(d *delivery) bool { return d.Sent == nil && !d.Held })
}

// followed tells whether a later webhook than d has gone. The caller holds mu.
func (s *Server) followed(d *delivery) bool {
	at := slices.Index(s.state.Deliveries, d)
	return slices.ContainsFunc(s.state.Deliveries[at+1:], func(later *delivery) bool { return later.Sent != nil })
}

// attempt is how sending went.
type attempt struct {
	status string
	code   int
	answer string
}

// unreachable is the outcome of a connection that did not come about.
var unreachable = attempt{status: "failed to connect to host", code: http.StatusBadGateway}

func (s *Server) send(ctx context.Context, url string, header http.Header, payload []byte) attempt {
	if url == "" {
		return attempt{status: "no webhook URL", code: http.StatusBadGateway}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(payload))
	if err != nil {
		return unreachable
	}
	r.Header = header.Clone()
	resp, err := s.hooks.Do(r)
	if err != nil {
		if timeout, ok := errors.AsType[interface {
			error
			Timeout() bool
		}](err); ok && timeout.Timeout() {
			return attempt{status: "timed out", code: http.StatusGatewayTimeout}
		}
		return unreachable
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return unreachable
	}
	status := http.StatusText(resp.StatusCode)
	if resp.StatusCode < http.StatusMultipleChoices {
		status = "OK"
	}
	return attempt{status: status, code: resp.StatusCode, answer: string(body)}
}

// hookHeader is what GitHub sends beside a payload.
func hookHeader(a *app, d *delivery, payload []byte) http.Header {
	mac := hmac.New(sha256.New, []byte(a.Secret))
	mac.Write(payload)
	h := http.Header{}
	h.Set("Accept", "*/*")
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "GitHub-Hookshot/0000000")
	h.Set("X-GitHub-Delivery", d.GUID)
	h.Set("X-GitHub-Event", d.Event)
	h.Set("X-GitHub-Hook-ID", strconv.FormatInt(a.ID, 10))
	h.Set("X-GitHub-Hook-Installation-Target-ID", strconv.FormatInt(a.ID, 10))
	h.Set("X-GitHub-Hook-Installation-Target-Type", "integration")
	h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	return h
}

func newGUID() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // crypto/rand never fails
	raw[6], raw[8] = raw[6]&0x0f|0x40, raw[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}
