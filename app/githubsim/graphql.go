package githubsim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// GraphQL is served as far as REST has nothing in its place: whether the threads
// of a review are resolved and by whom, and resolving one. A document is checked
// against that part of GitHub's schema; what is not in it is refused in the way in
// which GitHub refuses what it does not have.

// graphPath is where GraphQL is for the log and for faults. REST has no path
// without a slash.
const graphPath = "graphql"

var graphRoute = route{method: http.MethodPost, pattern: "/graphql", as: anInstallation, do: postGraph}

// A graphType lists the fields of one type of GitHub's schema.
type graphType map[string]graphMember

// A graphMember is a field: the type of its value, empty for a scalar, and the
// arguments that it takes; those with an exclamation mark are needed.
type graphMember struct {
	of    string
	args  []string
	pages bool // a connection, of which a page has to be asked for
}

var graphPages = []string{"first", "after"}

var graphTypes = map[string]graphType{
	"Query":    {"repository": {of: "Repository", args: []string{"owner!", "name!"}}},
	"Mutation": {"resolveReviewThread": {of: "ResolveReviewThreadPayload", args: []string{"input!"}}},
	"Repository": {
		"nameWithOwner": {}, "pullRequest": {of: "PullRequest", args: []string{"number!"}},
	},
	"PullRequest": {
		"id": {}, "number": {}, "reviewThreads": {of: "PullRequestReviewThreadConnection", args: graphPages, pages: true},
	},
	"PullRequestReviewThreadConnection": {
		"nodes": {of: "PullRequestReviewThread"}, "pageInfo": {of: "PageInfo"}, "totalCount": {},
	},
	"PullRequestReviewThread": {
		"id": {}, "isResolved": {}, "path": {}, "resolvedBy": {of: "User"},
		"comments": {of: "PullRequestReviewCommentConnection", args: graphPages, pages: true},
	},
	"PullRequestReviewCommentConnection": {
		"nodes": {of: "PullRequestReviewComment"}, "pageInfo": {of: "PageInfo"}, "totalCount": {},
	},
	"PullRequestReviewComment":   {"id": {}, "body": {}, "author": {of: "Actor"}},
	"Actor":                      {"login": {}},
	"User":                       {"login": {}},
	"PageInfo":                   {"hasNextPage": {}, "endCursor": {}},
	"ResolveReviewThreadPayload": {"thread": {of: "PullRequestReviewThread"}},
}

// A graphError is one of the errors of an answer. GitHub sends it with the
// status 200.
type graphError struct {
	Type       string            `json:"type,omitempty"`
	Path       []any             `json:"path,omitempty"`
	Extensions map[string]string `json:"extensions,omitempty"`
	Locations  []graphPlace      `json:"locations,omitempty"`
	Message    string            `json:"message"`
}

// Error is GitHub's message.
func (e *graphError) Error() string { return e.Message }

type graphAnswer struct {
	Data   map[string]any `json:"data,omitempty"`
	Errors []*graphError  `json:"errors,omitempty"`
}

func postGraph(c *call) (answer, error) {
	in, err := decode[struct {
		Query     string         `json:"query"`
		Variables map[string]any `json:"variables"`
	}](c)
	if err != nil {
		return answer{}, err
	}
	doc, wrong := parseGraph(in.Query)
	q := &graphRun{call: c, vars: in.Variables}
	root := "Query"
	if doc.kind == "mutation" {
		root = "Mutation"
	}
	if wrong == nil {
		wrong = q.bind(doc)
	}
	if wrong == nil {
		wrong = conforms(root, doc.fields, []any{doc.kind})
	}
	if wrong != nil {
		return ok(graphAnswer{Errors: []*graphError{wrong}})
	}
	data := q.object(root, nil, doc.fields, nil)
	return ok(graphAnswer{Data: data, Errors: q.wrong})
}

// conforms compares a selection with the schema before anything is done.
func conforms(kind string, fields []graphField, path []any) *graphError {
	for _, f := range fields {
		at := append(slices.Clone(path), f.name)
		refuse := func(code, message string) *graphError {
			return &graphError{Path: at, Extensions: map[string]string{"code": code, "typeName": kind, "fieldName": f.name}, Locations: []graphPlace{f.at}, Message: message}
		}
		if f.name == "__typename" {
			continue
		}
		m, known := graphTypes[kind][f.name]
		if !known {
			return refuse("undefinedField", fmt.Sprintf("Field '%s' doesn't exist on type '%s'", f.name, kind))
		}
		for _, name := range m.args {
			if need, needed := strings.CutSuffix(name, "!"); needed && f.args[need] == nil {
				return refuse("missingRequiredArguments", fmt.Sprintf("Field '%s' is missing required arguments: %s", f.name, need))
			}
		}
		for name := range f.args {
			if !slices.Contains(m.args, name) && !slices.Contains(m.args, name+"!") {
				return refuse("argumentNotAccepted", fmt.Sprintf("Field '%s' doesn't accept argument '%s'", f.name, name))
			}
		}
		switch {
		case m.of == "" && f.fields != nil:
			return refuse("selectionMismatch", fmt.Sprintf("Selections can't be made on scalars (field '%s')", f.name))
		case m.of != "" && f.fields == nil:
			return refuse("selectionMismatch", fmt.Sprintf("Field must have selections (field '%s' returns %s but has no selections.)", f.name, m.of))
		}
		if wrong := conforms(m.of, f.fields, at); wrong != nil {
			return wrong
		}
	}
	return nil
}

// A graphRun answers one document.
type graphRun struct {
	*call
	vars  map[string]any
	wrong []*graphError
}

// bind sees that each variable that the document needs has a value.
func (q *graphRun) bind(doc graphDocument) *graphError {
	for name, kind := range doc.vars {
		if strings.HasSuffix(kind, "!") && q.vars[name] == nil {
			return &graphError{Message: fmt.Sprintf("Variable $%s of type %s was provided invalid value", name, kind)}
		}
	}
	return nil
}

// object answers the fields of one value. A field that fails is null, and its
// error says where.
func (q *graphRun) object(kind string, of any, fields []graphField, path []any) map[string]any {
	out := map[string]any{}
	for _, f := range fields {
		at := append(slices.Clone(path), f.name)
		value, err := q.field(kind, of, f)
		if err != nil {
			err.Path, err.Locations = at, []graphPlace{f.at}
			q.wrong = append(q.wrong, err)
		}
		out[f.name] = q.nested(graphTypes[kind][f.name].of, value, f, at)
	}
	return out
}

// nested answers what is selected of a value that is no scalar.
func (q *graphRun) nested(kind string, value any, f graphField, path []any) any {
	if kind == "" || value == nil {
		return value
	}
	nodes, list := value.([]any)
	if !list {
		return q.object(kind, value, f.fields, path)
	}
	out := make([]any, len(nodes))
	for i, n := range nodes {
		out[i] = q.object(kind, n, f.fields, append(slices.Clone(path), i))
	}
	return out
}

// arg is an argument, with the value of its variable.
func (q *graphRun) arg(f graphField, name string) any {
	value := f.args[name]
	if v, ok := value.(graphVar); ok {
		value = q.vars[string(v)]
	}
	if n, ok := value.(float64); ok {
		return int(n) // by JSON, in which all numbers are alike
	}
	return value
}

func (q *graphRun) text(f graphField, name string) string {
	text, _ := q.arg(f, name).(string)
	return text
}

// field is the value of one field of one value.
func (q *graphRun) field(kind string, of any, f graphField) (any, *graphError) {
	switch v := of.(type) {
	case nil:
		if kind == "Mutation" {
			return q.resolve(f)
		}
		return q.repository(f)
	case *repo:
		if f.name == "pullRequest" {
			return q.pullRequest(v, f)
		}
		return scalar(f, map[string]any{"nameWithOwner": v.full(), "__typename": kind}), nil
	case graphPull:
		if f.name == "reviewThreads" {
			return q.page(f, v.threads())
		}
		return scalar(f, map[string]any{"id": node("PullRequest", v.thread.ID), "number": v.thread.Number, "__typename": kind}), nil
	case graphThread:
		if f.name == "comments" {
			return q.page(f, v.comments())
		}
		return scalar(f, v.fields(q.call)), nil
	case *reviewComment:
		return scalar(f, map[string]any{
			"id": node("PullRequestReviewComment", v.ID), "body": v.Body, "author": q.actor(v.Author), "__typename": kind,
		}), nil
	case map[string]any:
		return v[f.name], nil
	}
	return nil, &graphError{Message: "Something went wrong while executing your query."}
}

func scalar(f graphField, all map[string]any) any { return all[f.name] }

func (q *graphRun) repository(f graphField) (any, *graphError) {
	owner, name := q.text(f, "owner"), q.text(f, "name")
	r := q.st.repo(owner, name)
	if r == nil {
		r = q.st.former(owner, name) // renames are followed
	}
	if r == nil || !r.Public && !q.sees(r) {
		return nil, &graphError{Type: "NOT_FOUND", Message: fmt.Sprintf("Could not resolve to a Repository with the name '%s/%s'.", owner, name)}
	}
	return r, nil
}

func errGraphForbidden() *graphError {
	return &graphError{Type: "FORBIDDEN", Message: errForbidden.Message}
}

func (q *graphRun) pullRequest(r *repo, f graphField) (any, *graphError) {
	if !r.Public && !q.may("pull_requests", "read") {
		return nil, errGraphForbidden()
	}
	number, _ := q.arg(f, "number").(int)
	t := r.thread(number)
	if t == nil || t.Pull == nil {
		return nil, &graphError{Type: "NOT_FOUND", Message: fmt.Sprintf("Could not resolve to a PullRequest with the number of %d.", number)}
	}
	return graphPull{t}, nil
}

// A graphPull is a pull request, a graphThread one conversation about its diff.
type graphPull struct{ thread *thread }

func (p graphPull) threads() (all []any) {
	for _, rc := range p.thread.Pull.Comments {
		if rc.ReplyTo == 0 {
			all = append(all, graphThread{p.thread.Pull, rc})
		}
	}
	return all
}

type graphThread struct {
	pull  *pull
	first *reviewComment
}

func (t graphThread) comments() (all []any) {
	for _, rc := range t.pull.Comments {
		if rc == t.first || rc.ReplyTo == t.first.ID {
			all = append(all, rc)
		}
	}
	return all
}

func (t graphThread) fields(c *call) map[string]any {
	out := map[string]any{
		"id": threadNode(t.first), "path": t.first.Path, "isResolved": t.first.ResolvedBy != "", "__typename": "PullRequestReviewThread",
	}
	if t.first.ResolvedBy != "" {
		out["resolvedBy"] = c.actor(t.first.ResolvedBy)
	}
	return out
}

func threadNode(first *reviewComment) string { return node("PullRequestReviewThread", first.ID) }

// actor is an account. GraphQL leaves out of a bot's login what REST ends it in.
func (c *call) actor(login string) any {
	u := c.st.user(login)
	if u == nil {
		return nil // GitHub has none for an account that was deleted
	}
	return map[string]any{"login": strings.TrimSuffix(u.Login, "[bot]"), "__typename": u.Type}
}

// page cuts what was asked for of a connection. A cursor is the place of the last
// one that was seen.
func (q *graphRun) page(f graphField, all []any) (any, *graphError) {
	first, given := q.arg(f, "first").(int)
	switch {
	case !given:
		return nil, &graphError{Type: "MISSING_PAGINATION_BOUNDARIES", Message: fmt.Sprintf("You must provide a `first` or `last` value to properly paginate the `%s` connection.", f.name)}
	case first < 1 || first > 100:
		return nil, &graphError{Type: "EXCESSIVE_PAGINATION", Message: fmt.Sprintf("Requesting %d records on the `%s` connection exceeds the `first` limit of 100 records.", first, f.name)}
	}
	from := 0
	if after := q.text(f, "after"); after != "" {
		n, err := strconv.Atoi(after)
		if err != nil || n < 0 {
			return nil, &graphError{Type: "INVALID_CURSOR_ARGUMENTS", Message: fmt.Sprintf("`%s` does not appear to be a valid cursor.", after)}
		}
		from = min(n, len(all))
	}
	to := min(from+first, len(all))
	info := map[string]any{"hasNextPage": to < len(all)}
	if to > from {
		info["endCursor"] = strconv.Itoa(to)
	}
	return map[string]any{"nodes": append([]any{}, all[from:to]...), "pageInfo": info, "totalCount": len(all)}, nil
}

// resolve settles a thread. GitHub wants an App to be let write contents for that,
// beside pull requests.
func (q *graphRun) resolve(f graphField) (any, *graphError) {
	input, _ := q.arg(f, "input").(map[string]any)
	id, _ := q.arg(graphField{args: input}, "threadId").(string)
	for _, r := range q.st.Repos {
		for _, t := range r.Threads {
			if t.Pull == nil || !q.sees(r) {
				continue
			}
			first := find(t.Pull.Comments, func(rc *reviewComment) bool { return rc.ReplyTo == 0 && threadNode(rc) == id })
			switch {
			case first == nil:
			case !q.may("pull_requests", "write") || !q.may("contents", "write"):
				return nil, errGraphForbidden()
			default:
				if first.ResolvedBy == "" {
					first.ResolvedBy = q.me()
				}
				return map[string]any{"thread": graphThread{t.Pull, first}}, nil
			}
		}
	}
	return nil, &graphError{Type: "NOT_FOUND", Message: fmt.Sprintf("Could not resolve to a node with the global id of '%s'", id)}
}
