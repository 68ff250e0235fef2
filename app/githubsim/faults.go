package githubsim

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A FaultKind is what goes wrong.
type FaultKind string

// The kinds of fault. Those of webhooks match on Event, the others on Method,
// Path and Query.
const (
	FaultLatency    FaultKind = "latency"     // Delay before the work
	FaultStatus     FaultKind = "status"      // Status instead of the work
	FaultDropBefore FaultKind = "drop_before" // the connection breaks, nothing was done
	FaultDropAfter  FaultKind = "drop_after"  // the work is done, then the connection breaks
	FaultHold       FaultKind = "hold"        // the work is done, and the answer waits until ClearFaults
	FaultSecondary  FaultKind = "secondary"   // 403 of the secondary rate limit, with Retry-After
	FaultTooMany    FaultKind = "too_many"    // 429 of the secondary rate limit, with Retry-After
	FaultPrimary    FaultKind = "primary"     // 403 of the hourly limit, remaining 0
	FaultLose       FaultKind = "hook_lose"   // the webhook is never sent; GitHub lists it as failed
	FaultRepeat     FaultKind = "hook_repeat" // the webhook is sent twice with one GUID
	FaultDelay      FaultKind = "hook_delay"  // the webhook waits until the one after it has gone
)

// A Fault goes wrong on demand. Of several that match, the oldest acts.
type Fault struct {
	ID         int64         `json:"id"`
	Kind       FaultKind     `json:"kind"`
	Method     string        `json:"method,omitempty"`      // empty: any
	Path       string        `json:"path,omitempty"`        // prefix of the path without /api/v3; empty: any
	Query      string        `json:"query,omitempty"`       // part of the query; empty: any
	Event      string        `json:"event,omitempty"`       // webhooks: event, or event.action; empty: any
	Skip       int           `json:"skip,omitempty"`        // so many matches pass first
	Times      int           `json:"times,omitempty"`       // acts so often, then is gone; 0: until ClearFaults
	Status     int           `json:"status,omitempty"`      // FaultStatus; 0 means 502
	Delay      time.Duration `json:"delay,omitempty"`       // FaultLatency, nanoseconds
	RetryAfter int           `json:"retry_after,omitempty"` // seconds; 0 means 60
}

// Limits are the secondary limits on creating content, per installation;
// zero means none. GitHub's own are 80 and 500.
type Limits struct {
	PerMinute int `json:"per_minute"`
	PerHour   int `json:"per_hour"`
}

// fault takes the fault that acts on a request; its zero value is none.
func (s *Server) fault(method, path, query string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(func(f *Fault) bool {
		return !strings.HasPrefix(string(f.Kind), "hook_") &&
			(f.Method == "" || strings.EqualFold(f.Method, method)) && strings.HasPrefix(path, f.Path) && strings.Contains(query, f.Query)
	})
}

// hookFault takes the fault that acts on a webhook. The caller holds mu.
func (s *Server) hookFault(event, action string) Fault {
	return s.take(func(f *Fault) bool {
		return strings.HasPrefix(string(f.Kind), "hook_") &&
			(f.Event == "" || f.Event == event || f.Event == event+"."+action)
	})
}

func (s *Server) take(matches func(*Fault) bool) Fault {
	for i, f := range s.state.Faults {
		if !matches(f) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		taken := *f
		if taken.Status == 0 {
			taken.Status = http.StatusBadGateway
		}
		if taken.RetryAfter == 0 {
			taken.RetryAfter = 60
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.state.Faults = append(s.state.Faults[:i:i], s.state.Faults[i+1:]...)
			}
		}
		return taken
	}
	return Fault{}
}

// before acts ahead of the work; false means that the connection must break.
func (f Fault) before(ctx context.Context, s *Server) bool {
	switch f.Kind {
	case FaultLatency:
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	case FaultDropBefore:
		s.log.Debug("connection dropped on demand")
		return false
	}
	return true
}

// after acts between the work and its answer; false means that the connection
// must break.
func (f Fault) after(ctx context.Context, s *Server) bool {
	switch f.Kind {
	case FaultHold:
		s.mu.Lock()
		cleared := s.cleared
		s.mu.Unlock()
		select {
		case <-cleared:
		case <-ctx.Done():
			return false
		}
	case FaultDropAfter:
		return false
	}
	return true
}

const secondaryDocs = "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"

// refusal is the answer that the fault puts in the place of the work, or nil.
func (f Fault) refusal(now time.Time) error {
	switch f.Kind {
	case FaultStatus:
		return &apiError{Status: f.Status, Message: http.StatusText(f.Status)}
	case FaultSecondary:
		return secondaryLimit(http.StatusForbidden, f.RetryAfter)
	case FaultTooMany:
		return secondaryLimit(http.StatusTooManyRequests, f.RetryAfter)
	case FaultPrimary:
		reset := now.Add(time.Duration(f.RetryAfter) * time.Second)
		return &apiError{
			Status:  http.StatusForbidden,
			Message: "API rate limit exceeded for installation.",
			DocURL:  "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api",
			Header:  http.Header{"X-Ratelimit-Reset": {strconv.FormatInt(reset.Unix(), 10)}},
		}
	}
	return nil
}

func secondaryLimit(status, retryAfter int) error {
	return &apiError{
		Status:  status,
		Message: "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
		DocURL:  secondaryDocs,
		Header:  http.Header{"Retry-After": {strconv.Itoa(retryAfter)}},
	}
}

// secondary enforces Limits. The caller holds mu.
func (s *Server) secondary(c caller, r *route) error {
	limits := s.state.Limits
	creates := r.method == http.MethodPost && r != &graphRoute && c.token != nil
	if !creates || limits == (Limits{}) {
		return nil
	}
	now := s.now()
	kept := s.state.Created[:0]
	minute, hour := 0, 0
	for _, made := range s.state.Created {
		age := now.Sub(made.At)
		if age >= time.Hour {
			continue
		}
		kept = append(kept, made)
		if made.Installation != c.installation.ID {
			continue
		}
		hour++
		if age < time.Minute {
			minute++
		}
	}
	s.state.Created = kept
	if limits.PerMinute > 0 && minute >= limits.PerMinute {
		return secondaryLimit(http.StatusForbidden, 60)
	}
	if limits.PerHour > 0 && hour >= limits.PerHour {
		return secondaryLimit(http.StatusForbidden, 3600)
	}
	s.state.Created = append(s.state.Created, creation{Installation: c.installation.ID, At: now})
	return nil
}
