package schema_test

import (
	"net/http"
	"testing"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
)

func TestTheJudgeFindsFault(t *testing.T) {
	j, err := schema.New()
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	for name, x := range map[string]githubsim.Exchange{
		"an operation that GitHub does not have": {Method: "GET", URL: "http://sim/repos/a/b/nope", Status: 200, Response: []byte(`{}`)},
		"a response without its fields":          {Method: "GET", URL: "http://sim/repos/a/b/issues/1", Status: 200, Response: []byte(`{"id":1}`), ResponseHeader: header},
		"a request of the wrong type":            {Method: "POST", URL: "http://sim/repos/a/b/issues/1/comments", RequestHeader: header, Request: []byte(`{"body":1}`)},
		"a webhook without its fields":           {Event: "issues", Request: []byte(`{"action":"labeled"}`)},
		"a webhook of no such action":            {Event: "issues", Request: []byte(`{"action":"exploded"}`)},
	} {
		if err := j.Exchange(x); err == nil {
			t.Errorf("%s was let through", name)
		}
	}
	if err := j.Exchange(githubsim.Exchange{Method: "POST", URL: "http://sim/repos/a/b/issues/1/labels", RequestHeader: header, Request: []byte(`["a"]`)}); err != nil {
		t.Errorf("a bare array of labels: %v", err)
	}
}
