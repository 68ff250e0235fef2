package modeltest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post sends a request as a client of the Messages API does.
func post(t *testing.T, url, key, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return res.StatusCode, string(text)
}

func TestScriptedModel(t *testing.T) {
	model := modeltest.New(t, func(req modeltest.Request) modeltest.Turn {
		if req.Scenario == "busy" {
			return modeltest.Turn{Status: 529, Error: "Overloaded"}
		}
		return modeltest.Turn{
			Thinking: "hm", Text: "you said ünï " + req.Prompt(),
			Calls: []modeltest.Call{{Tool: "Read", Input: map[string]string{"file_path": "ä"}}},
		}
	})
	const ask = `{"model":"m","messages":[{"role":"user","content":"hello"}],"tools":[{"name":"Read"}]`

	t.Run("answers whole", func(t *testing.T) {
		status, text := post(t, model.URL()+"/v1/messages", modeltest.Key, ask+`}`)
		var answer struct {
			Content []struct {
				Type, Text, Name string
				Input            json.RawMessage
			}
			StopReason string `json:"stop_reason"`
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
			t.Fatalf("%d, %v: %s", status, err, text)
		}
		if c := answer.Content; len(c) != 3 || c[1].Text != "you said ünï hello" || string(c[2].Input) != `{"file_path":"ä"}` || answer.StopReason != "tool_use" {
			t.Errorf("answer = %s", text)
		}
	})
	t.Run("answers in pieces", func(t *testing.T) {
		_, text := post(t, model.URL()+"/v1/messages?beta=true", modeltest.Key, ask+`,"stream":true}`)
		var input strings.Builder
		for line := range strings.Lines(text) {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var event struct {
				Delta struct {
					JSON string `json:"partial_json"`
				} `json:"delta"`
			}
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				t.Fatalf("%v in %s", err, data)
			}
			input.WriteString(event.Delta.JSON)
		}
		if input.String() != `{"file_path":"ä"}` || !strings.HasSuffix(text, "{\"type\":\"message_stop\"}\n\n") {
			t.Errorf("the tool's input is %s in\n%s", &input, text)
		}
	})
	t.Run("tells scenarios apart by path", func(t *testing.T) {
		if status, text := post(t, model.URL()+"/busy/v1/messages", modeltest.Key, ask+`}`); status != 529 || !strings.Contains(text, "overloaded_error") {
			t.Errorf("%d: %s", status, text)
		}
	})
	t.Run("wants its key", func(t *testing.T) {
		if status, text := post(t, model.URL()+"/v1/messages", "another", ask+`}`); status != 401 || !strings.Contains(text, "authentication_error") {
			t.Errorf("%d: %s", status, text)
		}
	})
	t.Run("remembers what it was asked", func(t *testing.T) {
		if got := model.Requests(); len(got) != 4 || !got[0].Offers("Read") || got[0].Offers("Bash") || got[0].Turn() != 0 {
			t.Errorf("requests = %+v", got)
		}
	})
}
