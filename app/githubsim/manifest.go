package githubsim

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A pendingApp waits for its code to be exchanged.
type pendingApp struct {
	Code     string      `json:"code"`
	Owner    string      `json:"owner"`
	Manifest appManifest `json:"manifest"`
	Made     time.Time   `json:"made"`
}

// appManifest is what GitHub reads of a manifest.
type appManifest struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Hooks struct {
		URL    string `json:"url"`
		Active bool   `json:"active"`
	} `json:"hook_attributes"`
	Redirect    string            `json:"redirect_url"`
	Permissions map[string]string `json:"default_permissions"`
	Events      []string          `json:"default_events"`
	Public      bool              `json:"public"`
	Description string            `json:"description"`
}

var newAppPath = regexp.MustCompile(`^/(?:organizations/([^/]+)/)?settings/apps/new$`)

// codeLife is how long the code of a manifest can be exchanged.
const codeLife = time.Hour

// serveManifest takes the form by which a browser creates an App from a
// manifest. Whoever sends it is taken to have pressed the button as well.
func (s *Server) serveManifest(w http.ResponseWriter, r *http.Request, owner string) {
	r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
	var m appManifest
	if err := json.Unmarshal([]byte(r.FormValue("manifest")), &m); err != nil {
		http.Error(w, "the manifest is no JSON: "+err.Error(), http.StatusBadRequest)
		return
	}
	back, err := url.Parse(m.Redirect)
	if err == nil && (m.Name == "" || m.URL == "" || m.Hooks.URL == "" || !back.IsAbs()) {
		err = errors.New("name, url, hook_attributes.url and redirect_url are needed")
	}
	if err != nil {
		http.Error(w, "the manifest: "+err.Error(), http.StatusUnprocessableEntity)
		return
	}
	raw := make([]byte, 20)
	_, _ = rand.Read(raw) // crypto/rand never fails
	pending := &pendingApp{Code: hex.EncodeToString(raw), Owner: orText(owner, "octocat"), Manifest: m, Made: s.now()}
	if err := s.change(func(st *state) error { st.Pending = append(st.Pending, pending); return nil }); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	back.RawQuery = url.Values{"code": {pending.Code}, "state": {r.URL.Query().Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

type convertedShape struct {
	*appShape
	ClientID      string `json:"client_id"`
	ClientSecret  string `json:"client_secret"`
	WebhookSecret string `json:"webhook_secret"`
	PEM           string `json:"pem"`
}

var notInSlug = regexp.MustCompile(`[^a-z0-9]+`)

// convertManifest exchanges a code, once, for the App and its credentials.
func convertManifest(c *call) (answer, error) {
	at := slices.IndexFunc(c.st.Pending, func(p *pendingApp) bool { return p.Code == c.path["code"] })
	if at < 0 || c.s.now().Sub(c.st.Pending[at].Made) > codeLife {
		return answer{}, errNotFound
	}
	p := c.st.Pending[at]
	c.st.Pending = slices.Delete(c.st.Pending, at, at+1)
	slug := strings.Trim(notInSlug.ReplaceAllString(strings.ToLower(p.Manifest.Name), "-"), "-")
	if slug == "" || find(c.st.Apps, func(a *app) bool { return a.Slug == slug }) != nil {
		return answer{}, unprocessable(fmt.Sprintf("Name %q is taken", p.Manifest.Name))
	}
	key, err := newKey()
	if err != nil {
		return answer{}, err
	}
	secret := make([]byte, 40)
	_, _ = rand.Read(secret) // crypto/rand never fails
	a := &app{
		ID: c.st.next(), Slug: slug, Name: p.Manifest.Name, Owner: p.Owner, PrivateKey: key, Created: c.s.now(),
		Secret: hex.EncodeToString(secret[:20]), WebhookURL: p.Manifest.Hooks.URL,
		Permissions: maps.Clone(p.Manifest.Permissions), Events: slices.Clone(p.Manifest.Events),
	}
	c.st.ensureUser(a.Owner, "")
	c.st.ensureUser(a.bot(), "Bot")
	c.st.Apps = append(c.st.Apps, a)
	return created(convertedShape{
		appShape: c.shape().app(a), ClientID: fmt.Sprintf("Iv1.%016x", a.ID), ClientSecret: hex.EncodeToString(secret[20:]),
		WebhookSecret: a.Secret, PEM: key,
	})
}
