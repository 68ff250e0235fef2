package githubsim_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
)

func TestConditionalRequestsAreFree(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	w.ticket(t, "x")
	token, path := w.token(t, nil), "/repos/octo/shop/issues/1"
	first, _ := w.fetch(t, "GET", path, token, "")
	second, body := w.fetch(t, "GET", path, token, "", "If-None-Match", first.Header.Get("ETag"))
	if second.StatusCode != 304 || body != "" || second.Header.Get("X-RateLimit-Used") != first.Header.Get("X-RateLimit-Used") {
		t.Fatalf("answered %s, used %s after %s", second.Status, second.Header.Get("X-RateLimit-Used"), first.Header.Get("X-RateLimit-Used"))
	}
	other, _ := w.fetch(t, "GET", path, w.token(t, nil), "", "If-None-Match", first.Header.Get("ETag"))
	if other.StatusCode != 200 {
		t.Fatalf("a new token hit the old entry: %s", other.Status)
	}
	if first.Header.Get("X-GitHub-Request-Id") == "" {
		t.Fatal("the answer has no request id")
	}
	if limits, _, err := w.client(t, nil).RateLimit.Get(t.Context()); err != nil || limits.GetCore().Limit != 5000 {
		t.Fatalf("the limits are %v: %v", limits, err)
	}
}

func TestFaultsOnDemand(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	n := w.ticket(t, "x")
	gh := w.client(t, nil)
	got(gh.Issues.Get(t.Context(), "octo", "shop", n))(t) // mints the token
	post := func() (*github.Response, error) {
		_, resp, err := w.client(t, nil).Issues.CreateComment(t.Context(), "octo", "shop", n, &github.IssueComment{Body: github.String("hi")})
		return resp, err
	}
	comments := func() int {
		return got(gh.Issues.Get(t.Context(), "octo", "shop", n))(t).GetComments()
	}
	path := fmt.Sprintf("/repos/octo/shop/issues/%d/comments", n)
	for _, c := range []struct {
		name  string
		fault githubsim.Fault
		added int
		ok    func(*github.Response, error) bool
	}{
		{"an outage", githubsim.Fault{Kind: githubsim.FaultStatus, Status: 503}, 0, func(r *github.Response, err error) bool {
			return err != nil && r.StatusCode == 503
		}},
		{"the secondary limit", githubsim.Fault{Kind: githubsim.FaultSecondary, RetryAfter: 7}, 0, func(_ *github.Response, err error) bool {
			abuse, ok := errors.AsType[*github.AbuseRateLimitError](err)
			return ok && abuse.GetRetryAfter() == 7*time.Second
		}},
		{"the same as 429", githubsim.Fault{Kind: githubsim.FaultTooMany, RetryAfter: 9}, 0, func(r *github.Response, err error) bool {
			_, plain := errors.AsType[*github.ErrorResponse](err)
			return plain && r.StatusCode == 429 && r.Header.Get("Retry-After") == "9"
		}},
		{"the hourly limit", githubsim.Fault{Kind: githubsim.FaultPrimary}, 0, func(_ *github.Response, err error) bool {
			limit, ok := errors.AsType[*github.RateLimitError](err)
			return ok && limit.Rate.Remaining == 0 && limit.Rate.Reset.After(time.Now())
		}},
		{"a connection that breaks before", githubsim.Fault{Kind: githubsim.FaultDropBefore}, 0, func(_ *github.Response, err error) bool { return err != nil }},
		{"a connection that breaks after", githubsim.Fault{Kind: githubsim.FaultDropAfter}, 1, func(_ *github.Response, err error) bool { return err != nil }},
		{"slowness", githubsim.Fault{Kind: githubsim.FaultLatency, Delay: time.Millisecond}, 1, func(_ *github.Response, err error) bool { return err == nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := comments()
			c.fault.Method, c.fault.Path, c.fault.Times, c.fault.Skip = "POST", path, 1, 1
			must(w.AddFault(t.Context(), c.fault))(t)
			if _, err := post(); err != nil {
				t.Fatalf("the one that passes first: %v", err)
			}
			if resp, err := post(); !c.ok(resp, err) {
				t.Fatalf("answered %v", err)
			}
			if _, err := post(); err != nil {
				t.Fatalf("after the fault: %v", err)
			}
			if added := comments() - before - 2; added != c.added {
				t.Fatalf("the call in between added %d comments, want %d", added, c.added)
			}
		})
	}
	must(w.SetLimits(t.Context(), githubsim.Limits{PerMinute: 2}))(t)
	for range 2 {
		if _, err := post(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := post(); err == nil {
		t.Fatal("the third comment within a minute was accepted")
	}
}

func TestAnAnswerIsHeld(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	n := w.ticket(t, "x")
	gh := w.client(t, nil)
	comments := func() int { return got(gh.Issues.Get(t.Context(), "octo", "shop", n))(t).GetComments() }
	must(w.AddFault(t.Context(), githubsim.Fault{Kind: githubsim.FaultHold, Method: "POST", Path: fmt.Sprintf("/repos/octo/shop/issues/%d/comments", n), Times: 1}))(t)
	answered := make(chan error, 1)
	go func() {
		_, _, err := gh.Issues.CreateComment(t.Context(), "octo", "shop", n, &github.IssueComment{Body: github.String("hi")})
		answered <- err
	}()
	for comments() == 0 {
		select {
		case err := <-answered:
			t.Fatalf("it was answered: %v", err)
		case <-t.Context().Done():
			t.Fatal("it was not done")
		default:
		}
	}
	select {
	case err := <-answered:
		t.Fatalf("it was answered: %v", err)
	default:
	}
	must(w.ClearFaults(t.Context(), githubsim.Done{}))(t)
	if err := <-answered; err != nil {
		t.Errorf("the answer is %v", err)
	}
}

func TestAnUnknownRouteIsLoud(t *testing.T) {
	s := must(githubsim.Open(githubsim.Options{Dir: t.TempDir()}))(t)
	recorder := httptest.NewRecorder()
	s.Handler().ServeHTTP(recorder, httptest.NewRequest("GET", "http://sim/repos/a/b/stargazers", nil))
	if recorder.Code != 404 || recorder.Header().Get("X-Sim-Unknown") == "" {
		t.Fatalf("answered %d with %v", recorder.Code, recorder.Header())
	}
	if all := s.Unknown(); !slices.Equal(all, []string{"GET /repos/a/b/stargazers"}) {
		t.Fatalf("unknown: %q", all)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
