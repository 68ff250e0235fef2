package githubsim

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// routes are the operations served, in the order in which they are tried.
// Patterns are those of GitHub's description.
var routes = compile([]route{
	{method: "POST", pattern: "/app-manifests/{code}/conversions", do: convertManifest},
	{method: "GET", pattern: "/app", as: anApp, do: getApp},
	{method: "GET", pattern: "/app/installations", as: anApp, do: listInstallations},
	{method: "GET", pattern: "/app/installations/{installation_id}", as: anApp, do: getInstallation},
	{method: "POST", pattern: "/app/installations/{installation_id}/access_tokens", as: anApp, do: createToken},
	{method: "GET", pattern: "/app/hook/deliveries", as: anApp, do: listDeliveries},
	{method: "GET", pattern: "/app/hook/deliveries/{delivery_id}", as: anApp, do: getDelivery},
	{method: "POST", pattern: "/app/hook/deliveries/{delivery_id}/attempts", as: anApp, do: redeliver},
	{method: "DELETE", pattern: "/installation/token", as: anInstallation, do: revokeToken},
	{method: "GET", pattern: "/installation/repositories", as: anInstallation, do: listReachable},
	{method: "GET", pattern: "/rate_limit", do: getRateLimit},
	{method: "GET", pattern: "/users/{username}", do: getUser},

	{method: "GET", pattern: "/repos/{owner}/{repo}", as: anInstallation, need: []string{"metadata:read"}, do: getRepo},
	{method: "GET", pattern: "/repos/{owner}/{repo}/installation", as: anApp, do: getRepoInstallation},
	{method: "GET", pattern: "/repos/{owner}/{repo}/collaborators/{username}/permission", as: anInstallation, need: []string{"metadata:read"}, do: getPermission},
	{method: "GET", pattern: "/repos/{owner}/{repo}/contents/{path}", as: anInstallation, need: []string{"contents:read"}, do: getContents},

	{method: "GET", pattern: "/repos/{owner}/{repo}/issues", as: anInstallation, need: readThread, do: listThreads},
	{method: "POST", pattern: "/repos/{owner}/{repo}/issues", as: anInstallation, need: []string{"issues:write"}, do: createTicket},
	{method: "GET", pattern: "/repos/{owner}/{repo}/issues/comments/{comment_id}", as: anInstallation, need: readThread, do: getComment},
	{method: "PATCH", pattern: "/repos/{owner}/{repo}/issues/comments/{comment_id}", as: anInstallation, need: writeThread, do: updateComment},
	{method: "DELETE", pattern: "/repos/{owner}/{repo}/issues/comments/{comment_id}", as: anInstallation, need: writeThread, do: deleteComment},
	{method: "GET", pattern: "/repos/{owner}/{repo}/issues/comments/{comment_id}/reactions", as: anInstallation, need: readThread, do: listCommentReactions},
	{method: "POST", pattern: "/repos/{owner}/{repo}/issues/comments/{comment_id}/reactions", as: anInstallation, need: writeThread, do: createCommentReaction},
	{method: "GET", pattern: "/repos/{owner}/{repo}/issues/{issue_number}", as: anInstallation, need: readThread, do: getThread},
	{method: "PATCH", pattern: "/repos/{owner}/{repo}/issues/{issue_number}", as: anInstallation, need: writeThread, do: updateThread},
	{method: "GET", pattern: "/repos/{owner}/{repo}/issues/{issue_number}/labels", as: anInstallation, need: readThread, do: listLabels},
	{method: "POST", pattern: "/repos/{owner}/{repo}/issues/{issue_number}/labels", as: anInstallation, need: writeThread, do: addLabels},
	{method: "DELETE", pattern: "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}", as: anInstallation, need: writeThread, do: removeLabel},
	{method: "GET", pattern: "/repos/{owner}/{repo}/issues/{issue_number}/comments", as: anInstallation, need: readThread, do: listComments},
	{method: "POST", pattern: "/repos/{owner}/{repo}/issues/{issue_number}/comments", as: anInstallation, need: writeThread, do: createComment},
	{method: "GET", pattern: "/repos/{owner}/{repo}/issues/{issue_number}/reactions", as: anInstallation, need: readThread, do: listThreadReactions},
	{method: "POST", pattern: "/repos/{owner}/{repo}/issues/{issue_number}/reactions", as: anInstallation, need: writeThread, do: createThreadReaction},

	{method: "GET", pattern: "/repos/{owner}/{repo}/git/ref/{ref}", as: anInstallation, need: []string{"contents:read"}, do: getRef},
	{method: "GET", pattern: "/repos/{owner}/{repo}/git/matching-refs/{ref}", as: anInstallation, need: []string{"contents:read"}, do: listMatchingRefs},
	{method: "POST", pattern: "/repos/{owner}/{repo}/git/refs", as: anInstallation, need: []string{"contents:write"}, do: createRef},
	{method: "PATCH", pattern: "/repos/{owner}/{repo}/git/refs/{ref}", as: anInstallation, need: []string{"contents:write"}, do: updateRef},
	{method: "DELETE", pattern: "/repos/{owner}/{repo}/git/refs/{ref}", as: anInstallation, need: []string{"contents:write"}, do: deleteRef},
	{method: "GET", pattern: "/repos/{owner}/{repo}/branches/{branch}", as: anInstallation, need: []string{"contents:read"}, do: getBranch},
	{method: "GET", pattern: "/repos/{owner}/{repo}/commits/{ref}/check-runs", as: anInstallation, need: []string{"checks:read"}, do: listChecks},
	{method: "GET", pattern: "/repos/{owner}/{repo}/commits/{ref}/check-suites", as: anInstallation, need: []string{"checks:read"}, do: listSuites},
	{method: "GET", pattern: "/repos/{owner}/{repo}/commits/{ref}/status", as: anInstallation, need: []string{"statuses:read"}, do: getStatus},
	{method: "GET", pattern: "/repos/{owner}/{repo}/commits/{ref}", as: anInstallation, need: []string{"contents:read"}, do: getCommit},

	{method: "GET", pattern: "/repos/{owner}/{repo}/pulls", as: anInstallation, need: []string{"pull_requests:read"}, do: listPulls},
	{method: "POST", pattern: "/repos/{owner}/{repo}/pulls", as: anInstallation, need: []string{"pull_requests:write"}, do: createPull},
	{method: "GET", pattern: "/repos/{owner}/{repo}/pulls/{pull_number}", as: anInstallation, need: []string{"pull_requests:read"}, do: getPull},
	{method: "PATCH", pattern: "/repos/{owner}/{repo}/pulls/{pull_number}", as: anInstallation, need: []string{"pull_requests:write"}, do: updatePull},
	{method: "GET", pattern: "/repos/{owner}/{repo}/pulls/{pull_number}/files", as: anInstallation, need: []string{"pull_requests:read"}, do: listFiles},
	{method: "GET", pattern: "/repos/{owner}/{repo}/pulls/{pull_number}/reviews", as: anInstallation, need: []string{"pull_requests:read"}, do: listReviews},
	{method: "POST", pattern: "/repos/{owner}/{repo}/pulls/{pull_number}/reviews", as: anInstallation, need: []string{"pull_requests:write"}, do: createReview},
	{method: "GET", pattern: "/repos/{owner}/{repo}/pulls/{pull_number}/comments", as: anInstallation, need: []string{"pull_requests:read"}, do: listReviewComments},
	{method: "POST", pattern: "/repos/{owner}/{repo}/pulls/{pull_number}/comments", as: anInstallation, need: []string{"pull_requests:write"}, do: createReviewComment},
	{method: "GET", pattern: "/repos/{owner}/{repo}/pulls/{pull_number}/reviews/{review_id}", as: anInstallation, need: []string{"pull_requests:read"}, do: getReview},
	{method: "PATCH", pattern: "/repos/{owner}/{repo}/pulls/comments/{comment_id}", as: anInstallation, need: []string{"pull_requests:write"}, do: updateReviewComment},
	{method: "DELETE", pattern: "/repos/{owner}/{repo}/pulls/comments/{comment_id}", as: anInstallation, need: []string{"pull_requests:write"}, do: deleteReviewComment},
	{method: "GET", pattern: "/repos/{owner}/{repo}/pulls/comments/{comment_id}/reactions", as: anInstallation, need: []string{"pull_requests:read"}, do: listReviewCommentReactions},
	{method: "POST", pattern: "/repos/{owner}/{repo}/pulls/comments/{comment_id}/reactions", as: anInstallation, need: []string{"pull_requests:write"}, do: createReviewCommentReaction},
	{method: "POST", pattern: "/repos/{owner}/{repo}/pulls/{pull_number}/comments/{comment_id}/replies", as: anInstallation, need: []string{"pull_requests:write"}, do: replyToReview},

	{method: "POST", pattern: "/repos/{owner}/{repo}/check-runs", as: anInstallation, need: []string{"checks:write"}, do: createCheck},
	{method: "GET", pattern: "/repos/{owner}/{repo}/check-runs/{check_run_id}", as: anInstallation, need: []string{"checks:read"}, do: getCheck},
	{method: "PATCH", pattern: "/repos/{owner}/{repo}/check-runs/{check_run_id}", as: anInstallation, need: []string{"checks:write"}, do: updateCheck},
	{method: "POST", pattern: "/repos/{owner}/{repo}/check-runs/{check_run_id}/rerequest", as: anInstallation, need: []string{"checks:write"}, do: rerequestCheck},
	{method: "GET", pattern: "/repos/{owner}/{repo}/check-runs/{check_run_id}/annotations", as: anInstallation, need: []string{"checks:read"}, do: listAnnotations},
	{method: "GET", pattern: "/repos/{owner}/{repo}/rules/branches/{branch}", as: anInstallation, need: []string{"metadata:read"}, do: listRules},
	{method: "GET", pattern: "/repos/{owner}/{repo}/actions/jobs/{job_id}/logs", as: anInstallation, need: []string{"actions:read"}, do: getJobLog},
	{method: "GET", pattern: "/repos/{owner}/{repo}/actions/jobs/{job_id}", as: anInstallation, need: []string{"actions:read"}, do: getJob},
	{method: "POST", pattern: "/repos/{owner}/{repo}/actions/runs/{run_id}/rerun-failed-jobs", as: anInstallation, need: []string{"actions:write"}, do: rerunFailedJobs},
})

// A thread may be a ticket's or a pull request's; either permission opens the
// door, and call.mayThread then looks at which it is.
var (
	readThread  = []string{"issues:read", "pull_requests:read"}
	writeThread = []string{"issues:write", "pull_requests:write"}
)

// spanning are the parameters whose value may hold slashes.
var spanning = map[string]bool{"path": true, "ref": true, "branch": true}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

func compile(all []route) []route {
	for i := range all {
		text := parameter.ReplaceAllStringFunc(all[i].pattern, func(p string) string {
			name := strings.Trim(p, "{}")
			if spanning[name] {
				return "(?P<" + name + ">.*)"
			}
			return "(?P<" + name + ">[^/]+)"
		})
		all[i].match = regexp.MustCompile("^" + text + "/?$")
	}
	return all
}

// findRoute finds the operation of an escaped path, and its parameters.
func findRoute(method, path string) (*route, map[string]string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if path == graphPath && method == graphRoute.method {
		return &graphRoute, nil
	}
	for i := range routes {
		r := &routes[i]
		if r.method != method {
			continue
		}
		values := r.match.FindStringSubmatch(path)
		if values == nil {
			continue
		}
		params := map[string]string{}
		for j, name := range r.match.SubexpNames() {
			if j == 0 {
				continue
			}
			value, err := url.PathUnescape(values[j])
			if err != nil {
				return nil, nil
			}
			params[name] = value
		}
		return r, params
	}
	return nil, nil
}
