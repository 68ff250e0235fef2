package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/config"
)

//go:embed setup.html
var setupHTML string

var setupPages = template.Must(template.New("").Parse(setupHTML))

// A Setup serves the page that creates the GitHub App from its manifest. Whoever
// creates the App owns the server, so nothing is shown without the token that
// Link holds, which the terminal prints: the first browser that brings it gets a
// session, and it is worth nothing after that.
type Setup struct {
	conf     config.Server
	manifest Manifest
	log      *slog.Logger

	token, session, state string

	mu   sync.Mutex // owns what follows
	used bool       // the token was
	hook string     // where the App was told to send webhooks
	done *created
	end  chan struct{} // closed when the App is there
}

// A Manifest is what GitHub makes an App from, as app.yml and GitHub have it.
type Manifest struct {
	Name        string            `yaml:"name" json:"name"`
	URL         string            `yaml:"url" json:"url"`
	Description string            `yaml:"description" json:"description"`
	Public      bool              `yaml:"public" json:"public"`
	Hook        ManifestHook      `yaml:"hook_attributes" json:"hook_attributes"`
	Redirect    string            `yaml:"redirect_url" json:"redirect_url"`
	Permissions map[string]string `yaml:"default_permissions" json:"default_permissions"`
	Events      []string          `yaml:"default_events" json:"default_events"`
}

// A ManifestHook is where the webhooks of the App go.
type ManifestHook struct {
	URL    string `yaml:"url" json:"url"`
	Active bool   `yaml:"active" json:"active"`
}

// ReadManifest reads app.yml.
func ReadManifest(file []byte) (Manifest, error) {
	var m Manifest
	if err := yaml.Unmarshal(file, &m); err != nil {
		return m, fmt.Errorf("read the App's manifest: %w", err)
	}
	return m, nil
}

// created is the App that came of it.
type created struct {
	Page, Install, File, Webhook, Label string
}

// NewSetup returns the set-up page of a server without credentials.
func NewSetup(conf config.Server, manifest Manifest, log *slog.Logger) *Setup {
	return &Setup{
		conf: conf, manifest: manifest, log: log,
		token: random(), session: random(), state: random(), end: make(chan struct{}),
	}
}

func random() string {
	raw := make([]byte, 24)
	_, _ = rand.Read(raw) // crypto/rand never fails
	return hex.EncodeToString(raw)
}

// Link is the page's address on a listener, with the token.
func (s *Setup) Link(listener net.Listener) string {
	return "http://" + listener.Addr().String() + "/setup?token=" + s.token
}

// Run serves the page until the App is created and its credentials are stored,
// which it reports, or until ctx ends.
func (s *Setup) Run(ctx context.Context, listener net.Listener) (stored bool, err error) {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 90 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
		return false, err
	case <-ctx.Done():
	case <-s.end:
		stored = true
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	err = shut(closing, server) // after the answer of whoever is served
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return stored, err
}

// Handler serves the page. Webhooks are refused, so that GitHub lists them as
// failed and the first sweep fetches them.
func (s *Setup) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/setup", http.StatusSeeOther) })
	mux.HandleFunc("GET /setup", s.begin)
	mux.HandleFunc("POST /setup", s.guarded(s.review))
	mux.HandleFunc("GET /setup/done", s.guarded(s.finish))
	mux.HandleFunc("/webhook", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the server is being set up", http.StatusServiceUnavailable)
	})
	for _, probe := range []string{"GET /healthz", "GET /readyz"} { // a page that is not ready could not be reached
		mux.HandleFunc(probe, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok: being set up\n") })
	}
	return mux
}

const sessionCookie = "slipway_setup"

// begin takes the token for a session, or shows the first page to who has one.
func (s *Setup) begin(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	if token == "" {
		s.guarded(func(w http.ResponseWriter, _ *http.Request) {
			s.show(w, http.StatusOK, "begin", form{Name: s.manifest.Name})
		})(w, r)
		return
	}
	s.mu.Lock()
	good := same(token, s.token) && !s.used
	s.used = s.used || good
	s.mu.Unlock()
	if !good {
		s.show(w, http.StatusForbidden, "shut", nil)
		return
	}
	// Lax: GitHub's redirect back has to bring it, a form on another site not.
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: s.session, Path: "/setup", HttpOnly: true, SameSite: http.SameSiteLaxMode})
	http.Redirect(w, r, "/setup", http.StatusSeeOther)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// guarded serves only the browser that brought the token.
func (s *Setup) guarded(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		cookie, err := r.Cookie(sessionCookie)
		if err != nil || !same(cookie.Value, s.session) {
			s.show(w, http.StatusForbidden, "shut", nil)
			return
		}
		serve(w, r)
	}
}

// form is what is asked for, and what is wrong with it.
type form struct {
	Address, Name, Organization string
	Problem                     string

	Action      string // where the manifest goes
	Manifest    string // JSON
	Webhook     string
	Permissions map[string]string
	Events      []string
}

var (
	appName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._-]{0,33}$`)
	account = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}$`)
)

// review shows what the App will be allowed, and the button that creates it.
func (s *Setup) review(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	f := form{
		Address: strings.TrimRight(strings.TrimSpace(r.PostFormValue("address")), "/"), Name: strings.TrimSpace(r.PostFormValue("name")),
		Organization: strings.TrimSpace(r.PostFormValue("organization")),
	}
	public, err := url.Parse(f.Address)
	switch {
	case err != nil || public.Host == "" || public.Scheme != "https" && public.Scheme != "http" || public.User != nil || public.RawQuery != "" || public.Fragment != "":
		f.Problem = "Address: want one that GitHub can reach, such as https://slipway.example.com."
	case !appName.MatchString(f.Name):
		f.Problem = "Name: want up to 34 letters, digits, spaces, dots, dashes and underscores."
	case f.Organization != "" && !account.MatchString(f.Organization):
		f.Problem = "Organization: want the name in its address on GitHub, or nothing for an App of your own."
	}
	if f.Problem != "" {
		s.show(w, http.StatusUnprocessableEntity, "begin", f)
		return
	}
	m := s.manifest
	m.Name, m.Hook = f.Name, ManifestHook{URL: f.Address + "/webhook", Active: true}
	m.Redirect = "http://" + r.Host + "/setup/done" // the browser comes back to where it is
	if strings.EqualFold(r.Host, public.Host) {
		m.Redirect = f.Address + "/setup/done"
	}
	raw, err := json.Marshal(m)
	if err != nil {
		s.show(w, http.StatusInternalServerError, "begin", form{Problem: err.Error()})
		return
	}
	page := "/settings/apps/new"
	if f.Organization != "" {
		page = "/organizations/" + f.Organization + page
	}
	f.Action = webOf(s.conf.GitHub.BaseURL) + page + "?state=" + s.state
	s.mu.Lock()
	s.hook = m.Hook.URL
	s.mu.Unlock()
	f.Manifest, f.Webhook, f.Permissions, f.Events = string(raw), m.Hook.URL, m.Permissions, m.Events
	s.show(w, http.StatusOK, "review", f)
}

// webOf is where the pages are of the GitHub whose API is at base.
func webOf(base string) string {
	if strings.TrimRight(base, "/") == "https://api.github.com" {
		return "https://github.com"
	}
	return strings.TrimSuffix(strings.TrimRight(base, "/"), "/api/v3")
}

// finish takes the code that GitHub sends the browser back with.
func (s *Setup) finish(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil {
		s.show(w, http.StatusOK, "done", s.done)
		return
	}
	q := r.URL.Query()
	if !same(q.Get("state"), s.state) || q.Get("code") == "" {
		s.show(w, http.StatusForbidden, "shut", nil)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	made, err := github.ConvertManifest(ctx, s.conf.GitHub.BaseURL, s.conf.GitHub.CAFile, q.Get("code"))
	if err != nil {
		s.log.ErrorContext(ctx, "create the App", "error", err)
		s.show(w, http.StatusBadGateway, "begin", form{Name: s.manifest.Name, Problem: "GitHub did not hand out the new App, so start again here. If GitHub shows it all the same, delete it there first."})
		return
	}
	file, err := config.StoreGitHub(s.conf.StateDir, config.GitHub{
		AppID: made.ID, Slug: made.Slug, PrivateKey: config.Secret(made.PrivateKey),
		WebhookSecrets: []config.Secret{config.Secret(made.WebhookSecret)}, BaseURL: s.conf.GitHub.BaseURL,
	})
	if err != nil {
		s.log.ErrorContext(ctx, "store the App's credentials", "error", err)
		s.show(w, http.StatusInternalServerError, "begin", form{Name: s.manifest.Name, Problem: "The App is there, but its credentials could not be stored: " + err.Error() + ". Delete the App on GitHub and start again."})
		return
	}
	label := config.Defaults().Build.Label
	s.done = &created{Page: made.Page, Install: made.Page + "/installations/new", File: file, Webhook: s.hook, Label: label}
	s.show(w, http.StatusOK, "done", s.done)
	close(s.end)
}

func (s *Setup) show(w http.ResponseWriter, status int, page string, data any) {
	var out bytes.Buffer
	if err := setupPages.ExecuteTemplate(&out, page, data); err != nil {
		s.log.Error("set-up page not shown", "page", page, "error", err)
		http.Error(w, "the page could not be shown", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a client that went away misses it
}
