package inbox_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/queue"
)

const (
	oldSecret = "the old one"
	newSecret = "the new one"
	guid      = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
)

// shelf is a store that holds its jobs in memory, as far as the inbox needs.
type shelf struct {
	jobs map[string]queue.Job
	fail error
	hang bool
}

func (s *shelf) Put(ctx context.Context, j queue.Job) (queue.Job, bool, error) {
	if s.hang {
		<-ctx.Done()
		return queue.Job{}, false, ctx.Err()
	}
	if err := errors.Join(s.fail, ctx.Err()); err != nil {
		return queue.Job{}, false, err
	}
	if open, known := s.jobs[j.ID]; known {
		return open, false, nil
	}
	s.jobs[j.ID] = j
	return j, true, nil
}

func newShelf() *shelf { return &shelf{jobs: map[string]queue.Job{}} }

func newInbox(t testing.TB, s inbox.Store) *inbox.Inbox {
	t.Helper()
	in, err := inbox.New(s, []string{oldSecret, newSecret}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func request(body []byte, signature string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/webhook", bytes.NewReader(body))
	r.Header.Set("X-GitHub-Delivery", guid)
	r.Header.Set("X-GitHub-Event", "issue_comment")
	if signature != "" {
		r.Header.Set("X-Hub-Signature-256", signature)
	}
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestASignedDeliveryIsStoredOnce(t *testing.T) {
	for name, tc := range map[string]struct{ body, key, tenant string }{
		"a comment on an issue":  {`{"installation":{"id":7},"repository":{"full_name":"o/r"},"issue":{"number":12}}`, "o/r#12", "7"},
		"a review":               {`{"installation":{"id":7},"repository":{"full_name":"o/r"},"pull_request":{"number":3}}`, "o/r#3", "7"},
		"a check run":            {`{"installation":{"id":7},"repository":{"full_name":"o/r"},"check_run":{"id":1}}`, "o/r", "7"},
		"an installation":        {`{"installation":{"id":7}}`, "", "7"},
		"a ping":                 {`{"zen":"keep it simple"}`, "", ""},
		"a shape of another age": {`{"repository":"o/r","installation":{"id":7}}`, "", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf()
			in := newInbox(t, s)
			body := []byte(tc.body)
			for i, secret := range []string{oldSecret, newSecret, newSecret} {
				if w := serve(in, request(body, sign(secret, body))); w.Code != http.StatusAccepted {
					t.Fatalf("delivery %d: %d %s", i, w.Code, w.Body)
				}
			}
			if len(s.jobs) != 1 {
				t.Fatalf("%d jobs", len(s.jobs))
			}
			job := s.jobs[guid]
			if job.Kind != inbox.Kind || job.Key != tc.key || job.Tenant != tc.tenant || job.Once != "" {
				t.Fatalf("job %+v", job)
			}
			var d inbox.Delivery
			if err := json.Unmarshal(job.Payload, &d); err != nil {
				t.Fatal(err)
			}
			if d.Event != "issue_comment" || string(d.Body) != tc.body {
				t.Fatalf("payload %+v", d)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	body := []byte(`{"repository":{"full_name":"o/r"}}`)
	huge := bytes.Repeat([]byte(" "), 30<<20)
	for name, tc := range map[string]struct {
		request func() *http.Request
		want    int
	}{
		"a browser": {func() *http.Request { return httptest.NewRequest(http.MethodGet, "/webhook", nil) }, http.StatusMethodNotAllowed},
		"30 MB announced": {func() *http.Request {
			r := request(nil, "sha256=00")
			r.Body, r.ContentLength = io.NopCloser(iotest.ErrReader(errors.New("it is not to be read"))), 30<<20
			return r
		}, http.StatusRequestEntityTooLarge},
		"30 MB, signed, in chunks": {func() *http.Request {
			r := request(nil, sign(oldSecret, huge))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(huge)), -1
			return r
		}, http.StatusRequestEntityTooLarge},
		"no delivery id": {func() *http.Request {
			r := request(body, sign(oldSecret, body))
			r.Header.Del("X-GitHub-Delivery")
			return r
		}, http.StatusBadRequest},
		"a delivery id that is a path": {func() *http.Request {
			r := request(body, sign(oldSecret, body))
			r.Header.Set("X-GitHub-Delivery", "../../x")
			return r
		}, http.StatusBadRequest},
		"no event": {func() *http.Request {
			r := request(body, sign(oldSecret, body))
			r.Header.Del("X-GitHub-Event")
			return r
		}, http.StatusBadRequest},
		"no signature":                   {func() *http.Request { return request(body, "") }, http.StatusUnauthorized},
		"a signature of another key":     {func() *http.Request { return request(body, sign("guess", body)) }, http.StatusUnauthorized},
		"a signature of an empty key":    {func() *http.Request { return request(body, sign("", body)) }, http.StatusUnauthorized},
		"a signature of another body":    {func() *http.Request { return request(body, sign(oldSecret, []byte(`{}`))) }, http.StatusUnauthorized},
		"half a signature":               {func() *http.Request { return request(body, sign(oldSecret, body)[:30]) }, http.StatusUnauthorized},
		"a SHA-1 signature":              {func() *http.Request { return request(body, "sha1=00") }, http.StatusUnauthorized},
		"not JSON, and not signed":       {func() *http.Request { return request([]byte("{"), "") }, http.StatusUnauthorized},
		"not JSON, although signed":      {func() *http.Request { return request([]byte("{"), sign(oldSecret, []byte("{"))) }, http.StatusBadRequest},
		"a form instead of JSON":         {func() *http.Request { b := []byte("payload=%7B%7D"); return request(b, sign(oldSecret, b)) }, http.StatusBadRequest},
		"an empty body, although signed": {func() *http.Request { return request(nil, sign(oldSecret, nil)) }, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShelf()
			w := serve(newInbox(t, s), tc.request())
			if w.Code != tc.want {
				t.Fatalf("%d %s, want %d", w.Code, w.Body, tc.want)
			}
			if len(s.jobs) != 0 {
				t.Fatal("a refused delivery was stored")
			}
			if strings.TrimSpace(w.Body.String()) == "" {
				t.Fatal("refused without a reason")
			}
		})
	}
}

func TestAFullSizeDeliveryIsTaken(t *testing.T) {
	body := []byte(`{"pad":"` + strings.Repeat("x", inbox.MaxBody-10) + `"}`)
	s := newShelf()
	if w := serve(newInbox(t, s), request(body, sign(newSecret, body))); w.Code != http.StatusAccepted || len(s.jobs) != 1 {
		t.Fatalf("%d %s, %d jobs", w.Code, w.Body, len(s.jobs))
	}
}

func TestAFailingStoreIsNotAcknowledged(t *testing.T) {
	body := []byte(`{}`)
	s := newShelf()
	s.fail = errors.New("disk full")
	w := serve(newInbox(t, s), request(body, sign(oldSecret, body)))
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "disk full") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	s.fail = nil
	if w := serve(newInbox(t, s), request(body, sign(oldSecret, body))); w.Code != http.StatusAccepted || len(s.jobs) != 1 {
		t.Fatalf("the redelivery: %d %s, %d jobs", w.Code, w.Body, len(s.jobs))
	}
}

func TestAHangingStoreIsAnsweredBeforeGitHubGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.hang = true
		body := []byte(`{}`)
		if w := serve(newInbox(t, s), request(body, sign(oldSecret, body))); w.Code != http.StatusInternalServerError {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	})
}

func TestASenderThatHangsUpLosesNothing(t *testing.T) {
	s := newShelf()
	body := []byte(`{}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if w := serve(newInbox(t, s), request(body, sign(oldSecret, body)).WithContext(ctx)); w.Code != http.StatusAccepted || len(s.jobs) != 1 {
		t.Fatalf("%d %s, %d jobs", w.Code, w.Body, len(s.jobs))
	}
}

func TestAnEmptySecretRefusesToStart(t *testing.T) {
	for name, secrets := range map[string][]string{"none": nil, "empty": {""}, "blank": {"  "}, "one of two": {"good", ""}} {
		t.Run(name, func(t *testing.T) {
			if _, err := inbox.New(newShelf(), secrets, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "webhook secret") {
				t.Fatalf("error %v", err)
			}
		})
	}
}

func TestNothingOfABodyIsLogged(t *testing.T) {
	var out bytes.Buffer
	in, err := inbox.New(newShelf(), []string{oldSecret}, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"hidden":"in the body"}`)
	serve(in, request(body, sign(oldSecret, body)))
	serve(in, request(body, sign("wrong", body)))
	log := out.String()
	if !strings.Contains(log, guid) || !strings.Contains(log, "status=401") {
		t.Fatalf("log %s", log)
	}
	for _, secret := range []string{"in the body", oldSecret, sign(oldSecret, body)} {
		if strings.Contains(log, secret) {
			t.Fatalf("%q is in the log", secret)
		}
	}
}

// Whatever is sent: what is not signed is never taken, and what is taken comes
// out of the store as it went in, under a thread of its own repository.
func FuzzTake(f *testing.F) {
	for _, body := range []string{
		`{"action":"created","installation":{"id":7},"repository":{"full_name":"o/r"},"issue":{"number":12}}`,
		`{"repository":{"full_name":"o/r"},"pull_request":{"number":3}}`, `{"installation":7}`, `{"repository":null}`, `[]`, `null`, `"x"`, `{`, "", "\x00", "{}{}",
	} {
		f.Add(guid, "issue_comment", []byte(body), true)
	}
	f.Add(guid, "issue_comment", []byte("{}"), false)
	f.Add("a/../b", "issues\r\nX: y", []byte("{}"), true)
	f.Fuzz(func(t *testing.T, id, event string, body []byte, signed bool) {
		s := newShelf()
		r := request(body, "sha256=00")
		if signed {
			r.Header.Set("X-Hub-Signature-256", sign(newSecret, body))
		}
		r.Header["X-Github-Delivery"], r.Header["X-Github-Event"] = []string{id}, []string{event}
		w := httptest.NewRecorder()
		newInbox(t, s).ServeHTTP(w, r)
		if w.Code == http.StatusUnauthorized && !signed || w.Code == http.StatusBadRequest {
			if len(s.jobs) > 0 {
				t.Fatalf("refused with %d, and taken: %+v", w.Code, s.jobs)
			}
			return
		}
		if w.Code != http.StatusAccepted || !signed || len(s.jobs) != 1 {
			t.Fatalf("status %d, signed %t, %d jobs", w.Code, signed, len(s.jobs))
		}
		var d inbox.Delivery
		if err := json.Unmarshal(s.jobs[id].Payload, &d); err != nil || d.Event != event {
			t.Fatalf("stored %+v, %v", s.jobs[id], err)
		}
		if !reflect.DeepEqual(read(t, body), read(t, d.Body)) {
			t.Fatalf("the body came out as %s", d.Body)
		}
	})
}

// read is JSON as it means, with numbers as they are written.
func read(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}
