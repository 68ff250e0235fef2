package githubsim

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The types of this file are GitHub's JSON shapes; the methods of shaper make
// them from the state. Fields that GitHub requires are always there, also when
// null.

// A shaper makes shapes. Its methods are used with Server.mu held.
type shaper struct {
	st   *state
	base string // URL of the server
}

func (s *Server) shaper() shaper { return shaper{st: s.state, base: s.url} }

func (c *call) shape() shaper {
	base := c.s.url
	if base == "" {
		base = "http://" + c.r.Host
	}
	return shaper{st: c.st, base: base}
}

func (h shaper) api(r *repo) string  { return h.base + "/api/v3/repos/" + r.full() }
func (h shaper) html(r *repo) string { return h.base + "/" + r.full() }

func node(kind string, id int64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s:%d", kind, id))
}

type accountShape struct {
	Login             string `json:"login"`
	ID                int64  `json:"id"`
	NodeID            string `json:"node_id"`
	AvatarURL         string `json:"avatar_url"`
	GravatarID        string `json:"gravatar_id"`
	URL               string `json:"url"`
	HTMLURL           string `json:"html_url"`
	FollowersURL      string `json:"followers_url"`
	FollowingURL      string `json:"following_url"`
	GistsURL          string `json:"gists_url"`
	StarredURL        string `json:"starred_url"`
	SubscriptionsURL  string `json:"subscriptions_url"`
	OrganizationsURL  string `json:"organizations_url"`
	ReposURL          string `json:"repos_url"`
	EventsURL         string `json:"events_url"`
	ReceivedEventsURL string `json:"received_events_url"`
	Type              string `json:"type"`
	SiteAdmin         bool   `json:"site_admin"`
}

func (h shaper) account(login string) *accountShape {
	u := h.st.user(login)
	if u == nil {
		return nil
	}
	url := h.base + "/api/v3/users/" + strings.NewReplacer("[", "%5B", "]", "%5D").Replace(u.Login)
	return &accountShape{
		Login: u.Login, ID: u.ID, NodeID: node("User", u.ID),
		AvatarURL: h.base + "/avatars/" + fmt.Sprint(u.ID), URL: url,
		HTMLURL:      h.base + "/" + strings.TrimSuffix(u.Login, "[bot]"),
		FollowersURL: url + "/followers", FollowingURL: url + "/following{/other_user}",
		GistsURL: url + "/gists{/gist_id}", StarredURL: url + "/starred{/owner}{/repo}",
		SubscriptionsURL: url + "/subscriptions", OrganizationsURL: url + "/orgs",
		ReposURL: url + "/repos", EventsURL: url + "/events{/privacy}",
		ReceivedEventsURL: url + "/received_events", Type: u.Type,
	}
}

type profileShape struct {
	accountShape
	Name        *string   `json:"name"`
	Company     *string   `json:"company"`
	Blog        string    `json:"blog"`
	Location    *string   `json:"location"`
	Email       *string   `json:"email"`
	Hireable    *bool     `json:"hireable"`
	Bio         *string   `json:"bio"`
	ViewType    string    `json:"user_view_type"`
	PublicRepos int       `json:"public_repos"`
	PublicGists int       `json:"public_gists"`
	Followers   int       `json:"followers"`
	Following   int       `json:"following"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

type repoLinks struct {
	ForksURL         string `json:"forks_url"`
	KeysURL          string `json:"keys_url"`
	CollaboratorsURL string `json:"collaborators_url"`
	TeamsURL         string `json:"teams_url"`
	HooksURL         string `json:"hooks_url"`
	IssueEventsURL   string `json:"issue_events_url"`
	EventsURL        string `json:"events_url"`
	AssigneesURL     string `json:"assignees_url"`
	BranchesURL      string `json:"branches_url"`
	TagsURL          string `json:"tags_url"`
	BlobsURL         string `json:"blobs_url"`
	GitTagsURL       string `json:"git_tags_url"`
	GitRefsURL       string `json:"git_refs_url"`
	TreesURL         string `json:"trees_url"`
	StatusesURL      string `json:"statuses_url"`
	LanguagesURL     string `json:"languages_url"`
	StargazersURL    string `json:"stargazers_url"`
	ContributorsURL  string `json:"contributors_url"`
	SubscribersURL   string `json:"subscribers_url"`
	SubscriptionURL  string `json:"subscription_url"`
	CommitsURL       string `json:"commits_url"`
	GitCommitsURL    string `json:"git_commits_url"`
	CommentsURL      string `json:"comments_url"`
	IssueCommentURL  string `json:"issue_comment_url"`
	ContentsURL      string `json:"contents_url"`
	CompareURL       string `json:"compare_url"`
	MergesURL        string `json:"merges_url"`
	ArchiveURL       string `json:"archive_url"`
	DownloadsURL     string `json:"downloads_url"`
	IssuesURL        string `json:"issues_url"`
	PullsURL         string `json:"pulls_url"`
	MilestonesURL    string `json:"milestones_url"`
	NotificationsURL string `json:"notifications_url"`
	LabelsURL        string `json:"labels_url"`
	ReleasesURL      string `json:"releases_url"`
	DeploymentsURL   string `json:"deployments_url"`
}

type repoShape struct {
	ID              int64            `json:"id"`
	NodeID          string           `json:"node_id"`
	Name            string           `json:"name"`
	FullName        string           `json:"full_name"`
	Private         bool             `json:"private"`
	Owner           *accountShape    `json:"owner"`
	HTMLURL         string           `json:"html_url"`
	Description     *string          `json:"description"`
	Fork            bool             `json:"fork"`
	URL             string           `json:"url"`
	GitURL          string           `json:"git_url"`
	SSHURL          string           `json:"ssh_url"`
	CloneURL        string           `json:"clone_url"`
	SVNURL          string           `json:"svn_url"`
	MirrorURL       *string          `json:"mirror_url"`
	Homepage        *string          `json:"homepage"`
	Language        *string          `json:"language"`
	License         *struct{}        `json:"license"`
	Size            int              `json:"size"`
	Forks           int              `json:"forks"`
	ForksCount      int              `json:"forks_count"`
	Stargazers      int              `json:"stargazers_count"`
	Watchers        int              `json:"watchers"`
	WatchersCount   int              `json:"watchers_count"`
	NetworkCount    int              `json:"network_count"`
	Subscribers     int              `json:"subscribers_count"`
	OpenIssues      int              `json:"open_issues"`
	OpenIssuesCount int              `json:"open_issues_count"`
	HasIssues       bool             `json:"has_issues"`
	HasProjects     bool             `json:"has_projects"`
	HasDownloads    bool             `json:"has_downloads"`
	HasWiki         bool             `json:"has_wiki"`
	HasPages        bool             `json:"has_pages"`
	HasDiscussions  bool             `json:"has_discussions"`
	Archived        bool             `json:"archived"`
	Disabled        bool             `json:"disabled"`
	AllowForking    bool             `json:"allow_forking"`
	IsTemplate      bool             `json:"is_template"`
	SignoffRequired bool             `json:"web_commit_signoff_required"`
	Topics          []string         `json:"topics"`
	Visibility      string           `json:"visibility"`
	DefaultBranch   string           `json:"default_branch"`
	Permissions     *permissionShape `json:"permissions,omitempty"`
	CreatedAt       time.Time        `json:"created_at"`
	UpdatedAt       time.Time        `json:"updated_at"`
	PushedAt        time.Time        `json:"pushed_at"`
	repoLinks
}

type permissionShape struct {
	Admin    bool `json:"admin"`
	Maintain bool `json:"maintain"`
	Push     bool `json:"push"`
	Triage   bool `json:"triage"`
	Pull     bool `json:"pull"`
}

func (h shaper) repo(r *repo) *repoShape {
	api, html := h.api(r), h.html(r)
	open := 0
	for _, t := range r.Threads {
		if t.Closed == nil {
			open++
		}
	}
	visibility := "private"
	if r.Public {
		visibility = "public"
	}
	return &repoShape{
		ID: r.ID, NodeID: node("Repository", r.ID), Name: r.Name, FullName: r.full(), Private: !r.Public,
		Owner: h.account(r.Owner), HTMLURL: html, Description: textOrNull(r.Description), URL: api,
		GitURL: "git" + strings.TrimPrefix(strings.TrimPrefix(html, "https"), "http") + ".git",
		SSHURL: "git@localhost:" + r.full() + ".git", CloneURL: html + ".git", SVNURL: html,
		Fork: r.Parent != 0, OpenIssues: open, OpenIssuesCount: open, HasIssues: true, AllowForking: true,
		Topics: []string{}, Visibility: visibility, DefaultBranch: r.DefaultBranch,
		CreatedAt: r.Created, UpdatedAt: r.Pushed, PushedAt: r.Pushed,
		repoLinks: repoLinks{
			ForksURL: api + "/forks", KeysURL: api + "/keys{/key_id}", CollaboratorsURL: api + "/collaborators{/collaborator}",
			TeamsURL: api + "/teams", HooksURL: api + "/hooks", IssueEventsURL: api + "/issues/events{/number}",
			EventsURL: api + "/events", AssigneesURL: api + "/assignees{/user}", BranchesURL: api + "/branches{/branch}",
			TagsURL: api + "/tags", BlobsURL: api + "/git/blobs{/sha}", GitTagsURL: api + "/git/tags{/sha}",
			GitRefsURL: api + "/git/refs{/sha}", TreesURL: api + "/git/trees{/sha}", StatusesURL: api + "/statuses/{sha}",
			LanguagesURL: api + "/languages", StargazersURL: api + "/stargazers", ContributorsURL: api + "/contributors",
			SubscribersURL: api + "/subscribers", SubscriptionURL: api + "/subscription", CommitsURL: api + "/commits{/sha}",
			GitCommitsURL: api + "/git/commits{/sha}", CommentsURL: api + "/comments{/number}",
			IssueCommentURL: api + "/issues/comments{/number}", ContentsURL: api + "/contents/{+path}",
			CompareURL: api + "/compare/{base}...{head}", MergesURL: api + "/merges",
			ArchiveURL: api + "/{archive_format}{/ref}", DownloadsURL: api + "/downloads", IssuesURL: api + "/issues{/number}",
			PullsURL: api + "/pulls{/number}", MilestonesURL: api + "/milestones{/number}",
			NotificationsURL: api + "/notifications{?since,all,participating}", LabelsURL: api + "/labels{/name}",
			ReleasesURL: api + "/releases{/id}", DeploymentsURL: api + "/deployments",
		},
	}
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

type labelShape struct {
	ID          int64   `json:"id"`
	NodeID      string  `json:"node_id"`
	URL         string  `json:"url"`
	Name        string  `json:"name"`
	Color       string  `json:"color"`
	Default     bool    `json:"default"`
	Description *string `json:"description"`
}

func (h shaper) label(r *repo, l *label) labelShape {
	return labelShape{
		ID: l.ID, NodeID: node("Label", l.ID), URL: h.api(r) + "/labels/" + escapeSegment(l.Name),
		Name: l.Name, Color: l.Color, Description: textOrNull(l.Description),
	}
}

func (h shaper) labels(r *repo, names []string) []labelShape {
	out := []labelShape{}
	for _, name := range names {
		if l := r.label(name); l != nil {
			out = append(out, h.label(r, l))
		}
	}
	return out
}

type reactionsShape struct {
	URL      string `json:"url"`
	Total    int    `json:"total_count"`
	PlusOne  int    `json:"+1"`
	MinusOne int    `json:"-1"`
	Laugh    int    `json:"laugh"`
	Hooray   int    `json:"hooray"`
	Confused int    `json:"confused"`
	Heart    int    `json:"heart"`
	Rocket   int    `json:"rocket"`
	Eyes     int    `json:"eyes"`
}

func reactionCounts(url string, all []*reaction) reactionsShape {
	n := map[string]int{}
	for _, r := range all {
		n[r.Content]++
	}
	return reactionsShape{
		URL: url + "/reactions", Total: len(all), PlusOne: n["+1"], MinusOne: n["-1"], Laugh: n["laugh"],
		Hooray: n["hooray"], Confused: n["confused"], Heart: n["heart"], Rocket: n["rocket"], Eyes: n["eyes"],
	}
}

type reactionShape struct {
	ID        int64         `json:"id"`
	NodeID    string        `json:"node_id"`
	User      *accountShape `json:"user"`
	Content   string        `json:"content"`
	CreatedAt time.Time     `json:"created_at"`
}

func (h shaper) reaction(r *reaction) reactionShape {
	return reactionShape{ID: r.ID, NodeID: node("Reaction", r.ID), User: h.account(r.User), Content: r.Content, CreatedAt: r.Created}
}

type threadShape struct {
	ID               int64           `json:"id"`
	NodeID           string          `json:"node_id"`
	URL              string          `json:"url"`
	RepositoryURL    string          `json:"repository_url"`
	LabelsURL        string          `json:"labels_url"`
	CommentsURL      string          `json:"comments_url"`
	EventsURL        string          `json:"events_url"`
	HTMLURL          string          `json:"html_url"`
	Number           int             `json:"number"`
	State            string          `json:"state"`
	StateReason      *string         `json:"state_reason"`
	Title            string          `json:"title"`
	Body             *string         `json:"body"`
	User             *accountShape   `json:"user"`
	Labels           []labelShape    `json:"labels"`
	Assignee         *accountShape   `json:"assignee"`
	Assignees        []*accountShape `json:"assignees"`
	Milestone        *struct{}       `json:"milestone"`
	Locked           bool            `json:"locked"`
	ActiveLockReason *string         `json:"active_lock_reason"`
	Comments         int             `json:"comments"`
	PullRequest      *threadPull     `json:"pull_request,omitempty"`
	ClosedAt         *time.Time      `json:"closed_at"`
	CreatedAt        time.Time       `json:"created_at"`
	UpdatedAt        time.Time       `json:"updated_at"`
	Draft            *bool           `json:"draft,omitempty"`
	Association      string          `json:"author_association"`
	Reactions        reactionsShape  `json:"reactions"`
	ViaApp           *appShape       `json:"performed_via_github_app"`
}

type threadPull struct {
	URL      string     `json:"url"`
	HTMLURL  string     `json:"html_url"`
	DiffURL  string     `json:"diff_url"`
	PatchURL string     `json:"patch_url"`
	MergedAt *time.Time `json:"merged_at"`
}

func (h shaper) threadURL(r *repo, t *thread) string {
	return fmt.Sprintf("%s/issues/%d", h.api(r), t.Number)
}

func (h shaper) threadPage(r *repo, t *thread) string {
	if t.Pull != nil {
		return fmt.Sprintf("%s/pull/%d", h.html(r), t.Number)
	}
	return fmt.Sprintf("%s/issues/%d", h.html(r), t.Number)
}

func (h shaper) thread(r *repo, t *thread) threadShape {
	url := h.threadURL(r, t)
	out := threadShape{
		ID: t.ID, NodeID: node("Issue", t.ID), URL: url, RepositoryURL: h.api(r), LabelsURL: url + "/labels{/name}",
		CommentsURL: url + "/comments", EventsURL: url + "/events", HTMLURL: h.threadPage(r, t), Number: t.Number,
		State: t.state(), Title: t.Title, Body: textOrNull(t.Body), User: h.account(t.Author),
		Labels: h.labels(r, t.Labels), Assignees: []*accountShape{}, Comments: len(t.Comments),
		ClosedAt: t.Closed, CreatedAt: t.Created, UpdatedAt: t.Updated,
		Association: association(r, t.Author), Reactions: reactionCounts(url, t.Reactions),
	}
	if t.Reason != "" && t.Closed != nil {
		out.StateReason = &t.Reason
	}
	if t.Pull != nil {
		page := h.threadPage(r, t)
		out.PullRequest = &threadPull{
			URL: fmt.Sprintf("%s/pulls/%d", h.api(r), t.Number), HTMLURL: page,
			DiffURL: page + ".diff", PatchURL: page + ".patch", MergedAt: t.Pull.Merged,
		}
		out.Draft = &t.Pull.Draft
	}
	return out
}

// association is GitHub's guess at who somebody is. It says little: members of
// a private organisation look like strangers.
func association(r *repo, login string) string {
	switch role := r.Roles[strings.ToLower(login)]; {
	case strings.EqualFold(login, r.Owner):
		return "OWNER"
	case role == "" || role == "none" || role == "read":
		return "NONE"
	default:
		return "COLLABORATOR"
	}
}

type commentShape struct {
	ID          int64          `json:"id"`
	NodeID      string         `json:"node_id"`
	URL         string         `json:"url"`
	HTMLURL     string         `json:"html_url"`
	IssueURL    string         `json:"issue_url"`
	User        *accountShape  `json:"user"`
	CreatedAt   time.Time      `json:"created_at"`
	UpdatedAt   time.Time      `json:"updated_at"`
	Association string         `json:"author_association"`
	Body        string         `json:"body"`
	Reactions   reactionsShape `json:"reactions"`
	ViaApp      *appShape      `json:"performed_via_github_app"`
}

func (h shaper) comment(r *repo, t *thread, c *comment) commentShape {
	url := fmt.Sprintf("%s/issues/comments/%d", h.api(r), c.ID)
	return commentShape{
		ID: c.ID, NodeID: node("IssueComment", c.ID), URL: url,
		HTMLURL:  fmt.Sprintf("%s#issuecomment-%d", h.threadPage(r, t), c.ID),
		IssueURL: h.threadURL(r, t), User: h.account(c.Author), CreatedAt: c.Created, UpdatedAt: c.Updated,
		Association: association(r, c.Author), Body: c.Body, Reactions: reactionCounts(url, c.Reactions),
		ViaApp: h.app(h.st.app(c.App)),
	}
}

type appShape struct {
	ID          int64             `json:"id"`
	Slug        string            `json:"slug"`
	NodeID      string            `json:"node_id"`
	Owner       *accountShape     `json:"owner"`
	Name        string            `json:"name"`
	Description *string           `json:"description"`
	ExternalURL string            `json:"external_url"`
	HTMLURL     string            `json:"html_url"`
	CreatedAt   time.Time         `json:"created_at"`
	UpdatedAt   time.Time         `json:"updated_at"`
	Permissions map[string]string `json:"permissions"`
	Events      []string          `json:"events"`
}

func (h shaper) app(a *app) *appShape {
	if a == nil {
		return nil
	}
	return &appShape{
		ID: a.ID, Slug: a.Slug, NodeID: node("App", a.ID), Owner: h.account(a.Owner), Name: a.Name,
		ExternalURL: h.base, HTMLURL: h.base + "/apps/" + a.Slug, CreatedAt: a.Created, UpdatedAt: a.Created,
		Permissions: maps.Clone(a.Permissions), Events: listOf(a.Events),
	}
}

type installationShape struct {
	ID              int64             `json:"id"`
	NodeID          string            `json:"node_id,omitempty"`
	Account         *accountShape     `json:"account"`
	Selection       string            `json:"repository_selection"`
	AccessTokensURL string            `json:"access_tokens_url"`
	RepositoriesURL string            `json:"repositories_url"`
	HTMLURL         string            `json:"html_url"`
	AppID           int64             `json:"app_id"`
	AppSlug         string            `json:"app_slug"`
	TargetID        int64             `json:"target_id"`
	TargetType      string            `json:"target_type"`
	Permissions     map[string]string `json:"permissions"`
	Events          []string          `json:"events"`
	SingleFile      *string           `json:"single_file_name"`
	MultipleFiles   bool              `json:"has_multiple_single_files"`
	SingleFiles     []string          `json:"single_file_paths"`
	CreatedAt       time.Time         `json:"created_at"`
	UpdatedAt       time.Time         `json:"updated_at"`
	SuspendedBy     *accountShape     `json:"suspended_by"`
	SuspendedAt     *time.Time        `json:"suspended_at"`
}

func (h shaper) installation(i *installation) installationShape {
	a, owner := h.st.app(i.App), h.account(i.Account)
	selection := "selected"
	if i.All {
		selection = "all"
	}
	out := installationShape{
		ID: i.ID, Account: owner, Selection: selection,
		AccessTokensURL: fmt.Sprintf("%s/api/v3/app/installations/%d/access_tokens", h.base, i.ID),
		RepositoriesURL: h.base + "/api/v3/installation/repositories",
		HTMLURL:         fmt.Sprintf("%s/settings/installations/%d", h.base, i.ID),
		AppID:           a.ID, AppSlug: a.Slug, TargetType: "User",
		Permissions: maps.Clone(a.Permissions), Events: listOf(a.Events), SingleFiles: []string{},
		CreatedAt: i.Created, UpdatedAt: i.Created,
	}
	if owner != nil {
		out.TargetID, out.TargetType = owner.ID, owner.Type
	}
	h.suspended(i, &out)
	return out
}

// listOf is a copy that encodes as [] rather than null.
func listOf(all []string) []string {
	return append(make([]string, 0, len(all)), slices.Clone(all)...)
}
