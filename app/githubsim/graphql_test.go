package githubsim_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
)

const listOfThreads = `query($owner: String!, $name: String!, $number: Int!, $first: Int!, $after: String) {
	repository(owner: $owner, name: $name) { pullRequest(number: $number) { reviewThreads(first: $first, after: $after) {
		totalCount pageInfo { hasNextPage endCursor }
		nodes { id isResolved path resolvedBy { login } comments(first: 1) { nodes { body author { login __typename } } } }
	} } }
}`

const resolution = `mutation($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { id isResolved resolvedBy { login } } } }`

// asks sends one document and returns what was answered, whole.
func (w *world) asks(t *testing.T, path, token, query string, variables map[string]any) string {
	t.Helper()
	body := must(json.Marshal(map[string]any{"query": query, "variables": variables}))(t)
	resp, answer := w.fetch(t, "POST", path, token, string(body))
	if resp.StatusCode != 200 || resp.Header.Get("X-RateLimit-Resource") != "graphql" {
		t.Fatalf("%d by %s: %s", resp.StatusCode, resp.Header.Get("X-RateLimit-Resource"), answer)
	}
	return answer
}

func TestThreadsOfAReview(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	w.branch(t, "two")
	thread := must(w.OpenPull(t.Context(), githubsim.PullSpec{Repo: "octo/shop", Title: "Two", Head: "two", By: "maria"}))(t)
	var remarks []githubsim.Remark
	for i := range 3 {
		remarks = append(remarks, githubsim.Remark{Path: "new.txt", Line: 1, Body: fmt.Sprintf("Remark %d", i)})
	}
	given := must(w.Review(t.Context(), githubsim.ReviewSpec{Repo: "octo/shop", Number: thread.Number, Event: "COMMENT", By: "slipway[bot]", Remarks: remarks}))(t)
	must(w.Reply(t.Context(), githubsim.ReplySpec{Repo: "octo/shop", Number: thread.Number, Comment: given.Remarks[0], Body: "No.", By: "tom"}))(t)
	must(w.Resolve(t.Context(), githubsim.Resolution{Repo: "octo/shop", Number: thread.Number, Comment: given.Remarks[0], By: "tom"}))(t)

	token := w.token(t, nil)
	of := func(first int, after any) map[string]any {
		return map[string]any{"owner": "octo", "name": "shop", "number": thread.Number, "first": first, "after": after}
	}
	one := w.asks(t, "/graphql", token, listOfThreads, of(2, nil))
	for _, want := range []string{
		`"totalCount":3`, `"pageInfo":{"endCursor":"2","hasNextPage":true}`, `"resolvedBy":{"login":"tom"}`, `"isResolved":false`,
		`"author":{"__typename":"Bot","login":"slipway"}`, `"body":"Remark 0"`, `"body":"Remark 1"`,
	} {
		if !strings.Contains(one, want) {
			t.Errorf("no %s in %s", want, one)
		}
	}
	two := w.asks(t, "/api/graphql", token, listOfThreads, of(2, "2"))
	if !strings.Contains(two, `"hasNextPage":false`) || strings.Count(two, `"id"`) != 1 || strings.Contains(two, "Remark 1") {
		t.Errorf("the second page: %s", two)
	}
	var ids struct {
		Data struct {
			Repository struct {
				PullRequest struct {
					ReviewThreads struct{ Nodes []struct{ ID string } }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(two), &ids); err != nil {
		t.Fatal(err)
	}
	third := map[string]any{"id": ids.Data.Repository.PullRequest.ReviewThreads.Nodes[0].ID}
	narrow := w.token(t, &github.InstallationTokenOptions{Permissions: &github.InstallationPermissions{
		PullRequests: github.String("write"), Contents: github.String("read"),
	}})
	if said := w.asks(t, "/graphql", narrow, resolution, third); !strings.Contains(said, `"data":{"resolveReviewThread":null}`) || !strings.Contains(said, `"FORBIDDEN"`) {
		t.Errorf("without leave to write contents: %s", said)
	}
	for range 2 {
		if said := w.asks(t, "/graphql", token, resolution, third); !strings.Contains(said, `"isResolved":true,"resolvedBy":{"login":"slipway"}`) {
			t.Errorf("resolved: %s", said)
		}
	}
	must(w.Resolve(t.Context(), githubsim.Resolution{Repo: "octo/shop", Number: thread.Number, Comment: given.Remarks[0], By: "tom", Undo: true}))(t)
	if all := w.asks(t, "/graphql", token, listOfThreads, of(3, nil)); strings.Count(all, `"isResolved":true`) != 1 {
		t.Errorf("after tom changed his mind: %s", all)
	}
}

func TestGraphQLThatIsRefused(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	token := w.token(t, nil)
	blind := w.token(t, &github.InstallationTokenOptions{Permissions: &github.InstallationPermissions{Issues: github.String("write")}})
	repository := `{ repository(owner: "octo", name: "shop") { %s } }`
	for name, c := range map[string]struct{ token, query, says string }{
		"no document":              {token, `{ repository( }`, "Expected"},
		"a fragment":               {token, `{ ...x }`, "Expected"},
		"a field of nobody":        {token, fmt.Sprintf(repository, "stars"), "Field 'stars' doesn't exist on type 'Repository'"},
		"a field of a field":       {token, fmt.Sprintf(repository, "nameWithOwner { x }"), "Selections can't be made on scalars"},
		"nothing of an object":     {token, fmt.Sprintf(repository, "pullRequest(number: 1)"), "Field must have selections"},
		"no argument":              {token, fmt.Sprintf(repository, "pullRequest { id }"), "missing required arguments: number"},
		"another argument":         {token, fmt.Sprintf(repository, "pullRequest(number: 1, title: \"x\") { id }"), "doesn't accept argument 'title'"},
		"a variable without value": {token, `query($o: String!) { repository(owner: $o, name: "shop") { nameWithOwner } }`, "Variable $o of type String! was provided invalid value"},
		"no such repository":       {token, `{ repository(owner: "octo", name: "nope") { nameWithOwner } }`, "Could not resolve to a Repository with the name 'octo/nope'."},
		"no such pull request":     {token, fmt.Sprintf(repository, "pullRequest(number: 99) { id }"), "Could not resolve to a PullRequest with the number of 99."},
		"no leave to read":         {blind, fmt.Sprintf(repository, "pullRequest(number: 99) { id }"), "Resource not accessible by integration"},
		"no such thread":           {token, `mutation { resolveReviewThread(input: {threadId: "x"}) { thread { id } } }`, "Could not resolve to a node with the global id of 'x'"},
	} {
		if said := w.asks(t, "/graphql", c.token, c.query, nil); !strings.Contains(strings.ReplaceAll(said, `\u0026`, "&"), c.says) {
			t.Errorf("%s: %s", name, said)
		}
	}
	if resp, said := w.fetch(t, "POST", "/graphql", "", `{"query":"{ x }"}`); resp.StatusCode != 401 {
		t.Errorf("without a token: %d %s", resp.StatusCode, said)
	}
	must(w.AddFault(t.Context(), githubsim.Fault{Kind: githubsim.FaultPrimary, Times: 1}))(t)
	if said := w.asks(t, "/graphql", token, `{ repository(owner: "octo", name: "shop") { nameWithOwner } }`, nil); !strings.Contains(said, `"RATE_LIMITED"`) {
		t.Errorf("beyond the hourly limit: %s", said)
	}
	if said := w.asks(t, "/graphql", token, `{ repository(owner: "octo", name: "shop") { __typename nameWithOwner } }`, nil); !strings.Contains(said, `{"data":{"repository":{"__typename":"Repository","nameWithOwner":"octo/shop"}}}`) {
		t.Errorf("what is there: %s", said)
	}
}
