package modeltest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
)

// chatAnswer is what a client of chat completions reads, whole or in pieces.
type chatAnswer struct {
	Choices []struct {
		Message, Delta struct {
			Content   string
			Reasoning string `json:"reasoning_content"`
			Calls     []struct {
				Index    int
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		Finish string `json:"finish_reason"`
	}
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

func TestChatCompletions(t *testing.T) {
	model := modeltest.New(t, func(req modeltest.Request) modeltest.Turn {
		switch req.Scenario {
		case "busy":
			return modeltest.Turn{Status: 429, Error: "Slow down", Retry: 7}
		case "page":
			return modeltest.Turn{Page: "<html>moved</html>"}
		case "reset":
			return modeltest.Turn{Reset: true}
		case "stall":
			return modeltest.Turn{Text: "thinking", Stall: true}
		}
		return modeltest.Turn{
			Thinking: "hm", Text: "you said ünï " + req.Prompt(),
			Calls: []modeltest.Call{{Tool: "read", Input: map[string]string{"path": "ä"}}, {Tool: "list"}},
			Usage: modeltest.Usage{Input: 100, Output: 20, CacheRead: 30},
		}
	})
	const question = `{"model":"m","max_completion_tokens":9,"messages":[{"role":"system","content":"Be good."},{"role":"user","content":[{"type":"text","text":"hello"}]},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"file"}],` +
		`"tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"string"}}}`
	endpoint := func(scenario string) string { return model.URL() + scenario + "/v1/chat/completions" }

	t.Run("answers whole", func(t *testing.T) {
		status, text := post(t, endpoint(""), modeltest.Key, question+`}`)
		var answer chatAnswer
		if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
			t.Fatalf("%d, %v: %s", status, err, text)
		}
		c := answer.Choices[0]
		if c.Message.Content != "you said ünï hello" || c.Message.Reasoning != "hm" || c.Finish != "tool_calls" ||
			len(c.Message.Calls) != 2 || c.Message.Calls[0].Function.Arguments != `{"path":"ä"}` || c.Message.Calls[1].Function.Arguments != "{}" {
			t.Errorf("answer = %s", text)
		}
		if u := answer.Usage; u.Prompt != 130 || u.Details.Cached != 30 || u.Completion != 20 {
			t.Errorf("usage = %+v", u)
		}
	})
	t.Run("answers in pieces", func(t *testing.T) {
		_, text := post(t, endpoint(""), modeltest.Key, question+`,"stream":true,"stream_options":{"include_usage":true}}`)
		var said, finish string
		var last chatAnswer
		arguments := map[int]string{}
		for line := range strings.Lines(text) {
			data, ok := strings.CutPrefix(line, "data: {")
			if !ok {
				continue
			}
			last = chatAnswer{}
			if err := json.Unmarshal([]byte("{"+data), &last); err != nil {
				t.Fatalf("%v in %s", err, data)
			}
			for _, c := range last.Choices {
				said, finish = said+c.Delta.Content, finish+c.Finish
				for _, call := range c.Delta.Calls {
					arguments[call.Index] += call.Function.Arguments
				}
			}
		}
		if said != "you said ünï hello" || finish != "tool_calls" || arguments[0] != `{"path":"ä"}` || arguments[1] != "{}" {
			t.Errorf("said %q, %q, %v in\n%s", said, finish, arguments, text)
		}
		if last.Usage.Prompt != 130 || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("the end does not tell the usage:\n%s", text)
		}
	})
	t.Run("is busy in the API's own words", func(t *testing.T) {
		if status, text := post(t, endpoint("/busy"), modeltest.Key, question+`}`); status != 429 || !strings.HasPrefix(text, `{"error":{"type":"rate_limit_error"`) {
			t.Errorf("%d: %s", status, text)
		}
	})
	t.Run("sends a page", func(t *testing.T) {
		if status, text := post(t, endpoint("/page"), modeltest.Key, question+`}`); status != 200 || text != "<html>moved</html>" {
			t.Errorf("%d: %s", status, text)
		}
	})
	t.Run("hangs up", func(t *testing.T) {
		if res, err := ask(t, endpoint("/reset"), question+`}`); err == nil {
			_ = res.Body.Close()
			t.Errorf("it answered %s", res.Status)
		}
	})
	t.Run("stalls after its text", func(t *testing.T) {
		res, err := ask(t, endpoint("/stall"), question+`,"stream":true}`)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		read := make([]byte, 0, 4096)
		for !strings.Contains(string(read), `"king"`) {
			n, err := res.Body.Read(read[len(read):cap(read)])
			if err != nil {
				t.Fatalf("%v after %s", err, read)
			}
			read = read[:len(read)+n]
		}
		if strings.Contains(string(read), "[DONE]") {
			t.Errorf("it ended: %s", read)
		}
	})
	t.Run("wants its key", func(t *testing.T) {
		if status, text := post(t, endpoint(""), "another", question+`}`); status != 401 || !strings.Contains(text, "authentication_error") {
			t.Errorf("%d: %s", status, text)
		}
	})
	t.Run("tells what it was asked in the words of Request", func(t *testing.T) {
		got := model.Requests()[0]
		results := got.Results()
		if got.System.String() != "Be good." || got.Prompt() != "hello" || got.Turn() != 1 || !got.Offers("read") || got.MaxTokens != 9 ||
			string(got.Schema) != `{"type":"string"}` || len(results) != 1 || results[0] != (modeltest.Result{Tool: "read", Text: "file"}) {
			t.Errorf("request = %+v", got)
		}
	})
}

// ask posts a request and leaves the answer to be read.
func ask(t *testing.T, url, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.NopCloser(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+modeltest.Key)
	return http.DefaultClient.Do(req)
}
