package githubsim

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

func getApp(c *call) (answer, error) { return ok(c.shape().app(c.app)) }

func listInstallations(c *call) (answer, error) {
	out := []installationShape{}
	for _, i := range c.st.Installations {
		if i.App == c.app.ID {
			out = append(out, c.shape().installation(i))
		}
	}
	return ok(page(c, out))
}

// ownInstallation is the one that the path names, if it is the App's.
func ownInstallation(c *call) (*installation, error) {
	i := c.st.installation(c.number("installation_id"))
	if i == nil || i.App != c.app.ID {
		return nil, errNotFound
	}
	return i, nil
}

func getInstallation(c *call) (answer, error) {
	i, err := ownInstallation(c)
	if err != nil {
		return answer{}, err
	}
	return ok(c.shape().installation(i))
}

func getRepoInstallation(c *call) (answer, error) {
	for _, i := range c.st.Installations {
		if i.App == c.app.ID && i.covers(c.repo) {
			return ok(c.shape().installation(i))
		}
	}
	return answer{}, errNotFound
}

type tokenRequest struct {
	Repositories  []string          `json:"repositories"`
	RepositoryIDs []int64           `json:"repository_ids"`
	Permissions   map[string]string `json:"permissions"`
}

type tokenShape struct {
	Token        string            `json:"token"`
	ExpiresAt    time.Time         `json:"expires_at"`
	Permissions  map[string]string `json:"permissions"`
	Selection    string            `json:"repository_selection"`
	Repositories []*repoShape      `json:"repositories,omitempty"`
}

// tokenLife is how long an installation token is valid.
const tokenLife = time.Hour

func createToken(c *call) (answer, error) {
	i, err := ownInstallation(c)
	if err != nil {
		return answer{}, err
	}
	if i.Suspended != nil {
		return answer{}, &apiError{Status: http.StatusForbidden, Message: "This installation has been suspended"}
	}
	in, err := decode[tokenRequest](c)
	if err != nil {
		return answer{}, err
	}
	repos, err := narrow(c, i, in)
	if err != nil {
		return answer{}, err
	}
	granted := maps.Clone(c.app.Permissions)
	if in.Permissions != nil {
		granted = map[string]string{}
		for name, level := range in.Permissions {
			if levels[level] == 0 || levels[level] > levels[c.app.Permissions[name]] {
				return answer{}, unprocessable("The permissions requested are not granted to this installation.")
			}
			granted[name] = level
		}
	}
	granted["metadata"] = "read"
	now := c.s.now()
	c.st.Tokens = slices.DeleteFunc(c.st.Tokens, func(t *token) bool { return !now.Before(t.Expires) })
	secret, digest := newToken(c.app.ID)
	t := &token{Digest: digest, Installation: i.ID, Permissions: granted, Expires: now.Add(tokenLife)}
	out := tokenShape{Token: secret, ExpiresAt: t.Expires, Permissions: granted, Selection: c.shape().installation(i).Selection}
	for _, r := range repos {
		t.Repos = append(t.Repos, r.ID)
		out.Repositories = append(out.Repositories, c.shape().repo(r))
		out.Selection = "selected"
	}
	c.st.Tokens = append(c.st.Tokens, t)
	return created(out)
}

// narrow finds the repositories that a token is asked for.
func narrow(c *call, i *installation, in tokenRequest) ([]*repo, error) {
	var out []*repo
	add := func(r *repo) error {
		if r == nil || !i.covers(r) {
			return unprocessable("There is at least one repository that does not exist or is not accessible to the parent installation.")
		}
		out = append(out, r)
		return nil
	}
	for _, name := range in.Repositories {
		if err := add(c.st.repo(i.Account, name)); err != nil {
			return nil, err
		}
	}
	for _, id := range in.RepositoryIDs {
		if err := add(find(c.st.Repos, func(r *repo) bool { return r.ID == id })); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func revokeToken(c *call) (answer, error) {
	c.st.Tokens = slices.DeleteFunc(c.st.Tokens, func(t *token) bool { return t == c.token })
	return gone()
}

func listReachable(c *call) (answer, error) {
	all := []*repoShape{}
	for _, r := range c.st.Repos {
		if c.sees(r) {
			all = append(all, c.shape().repo(r))
		}
	}
	return ok(struct {
		Total        int          `json:"total_count"`
		Selection    string       `json:"repository_selection"`
		Repositories []*repoShape `json:"repositories"`
	}{len(all), c.shape().installation(c.installation).Selection, page(c, all)})
}

type rateShape struct {
	Limit     int   `json:"limit"`
	Used      int   `json:"used"`
	Remaining int   `json:"remaining"`
	Reset     int64 `json:"reset"`
}

func getRateLimit(c *call) (answer, error) {
	q := c.s.quotaOf(c.caller, coreResource)
	core := rateShape{Limit: quotaLimit, Used: q.used, Remaining: max(0, quotaLimit-q.used), Reset: q.reset.Unix()}
	search := rateShape{Limit: 30, Remaining: 30, Reset: q.reset.Unix()}
	type resources struct {
		Core   rateShape `json:"core"`
		Search rateShape `json:"search"`
	}
	return ok(struct {
		Resources resources `json:"resources"`
		Rate      rateShape `json:"rate"`
	}{resources{core, search}, core})
}

func getUser(c *call) (answer, error) {
	u := c.st.user(c.path["username"])
	if u == nil {
		return answer{}, errNotFound
	}
	return ok(profileShape{accountShape: *c.shape().account(u.Login), Name: textOrNull(u.Name), ViewType: "public"})
}

func getRepo(c *call) (answer, error) {
	out := c.shape().repo(c.repo)
	if c.token != nil {
		out.Permissions = &permissionShape{Pull: c.may("contents", "read"), Push: c.may("contents", "write")}
	}
	return ok(out)
}

type collaboratorShape struct {
	accountShape
	RoleName    string          `json:"role_name"`
	Permissions permissionShape `json:"permissions"`
}

// roles in ascending order, and what the older field calls them.
var roles = []string{"none", "read", "triage", "write", "maintain", "admin"}

func getPermission(c *call) (answer, error) {
	u := c.st.user(c.path["username"])
	if u == nil {
		return answer{}, errNotFound
	}
	role := roleOf(c.repo, u)
	at := slices.Index(roles, role)
	coarse := map[string]string{"triage": "read", "maintain": "write"}[role]
	if coarse == "" {
		coarse = role
	}
	return ok(struct {
		Permission string            `json:"permission"`
		RoleName   string            `json:"role_name"`
		User       collaboratorShape `json:"user"`
	}{coarse, role, collaboratorShape{
		accountShape: *c.shape().account(u.Login), RoleName: role,
		Permissions: permissionShape{Pull: at >= 1, Triage: at >= 2, Push: at >= 3, Maintain: at >= 4, Admin: at >= 5},
	}})
}

// roleOf is the effective role. Bots have none, whatever was granted.
func roleOf(r *repo, u *user) string {
	if u.Type == "Bot" {
		return "none"
	}
	if strings.EqualFold(u.Login, r.Owner) {
		return "admin"
	}
	if role := r.Roles[strings.ToLower(u.Login)]; role != "" {
		return role
	}
	if r.Public {
		return "read"
	}
	return "none"
}

type deliveryShape struct {
	ID           int64             `json:"id"`
	GUID         string            `json:"guid"`
	DeliveredAt  time.Time         `json:"delivered_at"`
	Redelivery   bool              `json:"redelivery"`
	Duration     float64           `json:"duration"` // seconds
	Status       string            `json:"status"`
	StatusCode   int               `json:"status_code"`
	Event        string            `json:"event"`
	Action       *string           `json:"action"`
	Installation *int64            `json:"installation_id"`
	Repository   *int64            `json:"repository_id"`
	URL          string            `json:"url,omitempty"`
	Request      *deliveryRequest  `json:"request,omitempty"`
	Response     *deliveryResponse `json:"response,omitempty"`
}

type deliveryRequest struct {
	Headers map[string]string `json:"headers"`
	Payload json.RawMessage   `json:"payload"`
}

type deliveryResponse struct {
	Headers map[string]string `json:"headers"`
	Payload string            `json:"payload"`
}

func deliveryOf(d *delivery) deliveryShape {
	out := deliveryShape{
		ID: d.ID, GUID: d.GUID, DeliveredAt: *d.Sent, Redelivery: d.Redelivery, Duration: d.Duration.Seconds(),
		Status: d.Status, StatusCode: d.Code, Event: d.Event, Action: textOrNull(d.Action),
	}
	if d.Installation != 0 {
		out.Installation = &d.Installation
	}
	if d.Repo != 0 {
		out.Repository = &d.Repo
	}
	return out
}

// kept is how long GitHub lists a delivery.
const kept = 3 * 24 * time.Hour

// deliveriesOf are those of the App that were attempted, newest first.
func deliveriesOf(c *call) []*delivery {
	var out []*delivery
	for _, d := range slices.Backward(c.st.Deliveries) {
		if d.App == c.app.ID && d.Sent != nil && c.s.now().Sub(*d.Sent) < kept {
			out = append(out, d)
		}
	}
	return out
}

func listDeliveries(c *call) (answer, error) {
	per := max(1, min(atoi(c.query("per_page", "30"), 30), 100))
	before := int64(atoi(strings.TrimPrefix(c.query("cursor", ""), "v1_"), 0))
	out := []deliveryShape{}
	for _, d := range deliveriesOf(c) {
		if before != 0 && d.ID >= before {
			continue
		}
		if len(out) == per {
			c.link("next", "cursor", "v1_"+strconv.FormatInt(out[per-1].ID, 10))
			break
		}
		out = append(out, deliveryOf(d))
	}
	return ok(out)
}

func ownDelivery(c *call) (*delivery, error) {
	id := c.number("delivery_id")
	d := find(deliveriesOf(c), func(d *delivery) bool { return d.ID == id })
	if d == nil {
		return nil, errNotFound
	}
	return d, nil
}

func getDelivery(c *call) (answer, error) {
	d, err := ownDelivery(c)
	if err != nil {
		return answer{}, err
	}
	payload, err := c.s.payload(d)
	if err != nil {
		return answer{}, err
	}
	out := deliveryOf(d)
	out.URL = c.app.WebhookURL
	out.Request = &deliveryRequest{Headers: map[string]string{}, Payload: payload}
	for name, values := range hookHeader(c.app, d, payload) {
		out.Request.Headers[name] = values[0]
	}
	out.Response = &deliveryResponse{Headers: map[string]string{}, Payload: d.Answer}
	return ok(out)
}

func redeliver(c *call) (answer, error) {
	d, err := ownDelivery(c)
	if err != nil {
		return answer{}, err
	}
	c.s.again(d)
	return answer{http.StatusAccepted, struct{}{}}, nil
}

// again queues another attempt of a delivery, with the same GUID and body.
func (s *Server) again(d *delivery) *delivery {
	copied := *d
	copied.ID, copied.Redelivery, copied.Sent, copied.Queued = s.state.next(), true, nil, s.now()
	copied.Status, copied.Code, copied.Duration, copied.Answer = "", 0, 0, ""
	s.state.Deliveries = append(s.state.Deliveries, &copied)
	return &copied
}
