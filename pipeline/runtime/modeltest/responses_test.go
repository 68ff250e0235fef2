package modeltest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
)

// response is what a client of the responses API reads.
type response struct {
	Status string
	Output []responseItem
	Usage  struct {
		Input   int `json:"input_tokens"`
		Output  int `json:"output_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	}
}

type responseItem struct {
	Type, Name, Arguments, Input string
	Content, Summary             []struct{ Text string }
}

func TestResponses(t *testing.T) {
	model := modeltest.New(t, func(req modeltest.Request) modeltest.Turn {
		switch req.Scenario {
		case "busy":
			return modeltest.Turn{Status: 429, Error: "Slow down", Retry: 7}
		case "poor":
			return modeltest.Turn{Status: 429, Error: "Pay first", Type: "insufficient_quota"}
		case "stall":
			return modeltest.Turn{Text: "thinking", Stall: true}
		}
		return modeltest.Turn{
			Thinking: "hm", Text: "you said ünï " + req.Prompt(),
			Calls: []modeltest.Call{{Tool: "read", Input: map[string]string{"path": "ä"}}, {Tool: "exec", Input: "ö()"}},
			Usage: modeltest.Usage{Input: 100, Output: 20, CacheRead: 30},
		}
	})
	const question = `{"model":"m","instructions":"Be good.","input":[{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"exec"}]}]},` +
		`{"role":"developer","content":"Be quick."},{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]},` +
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"so"}]},{"type":"function_call","call_id":"c1","name":"read","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"file"},` +
		`{"type":"custom_tool_call","call_id":"c2","name":"exec","input":"x"},{"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"done"}]}],` +
		`"tools":[{"type":"function","name":"read","parameters":{"type":"object"}}]`
	endpoint := func(scenario string) string { return model.URL() + scenario + "/v1/responses" }
	checkItems := func(t *testing.T, items []responseItem) {
		t.Helper()
		if len(items) != 4 || items[0].Summary[0].Text != "hm" || items[1].Content[0].Text != "you said ünï hello" ||
			items[2].Arguments != `{"path":"ä"}` || items[3].Input != "ö()" || items[3].Type != "custom_tool_call" {
			t.Errorf("items = %+v", items)
		}
	}

	t.Run("answers whole", func(t *testing.T) {
		status, text := post(t, endpoint(""), modeltest.Key, question+`}`)
		var r response
		if err := json.Unmarshal([]byte(text), &r); err != nil || status != 200 {
			t.Fatalf("%d, %v: %s", status, err, text)
		}
		checkItems(t, r.Output)
		if r.Usage.Input != 130 || r.Usage.Details.Cached != 30 || r.Usage.Output != 20 || r.Status != "completed" {
			t.Errorf("answer = %s", text)
		}
	})
	t.Run("answers in pieces", func(t *testing.T) {
		_, text := post(t, endpoint(""), modeltest.Key, question+`,"stream":true}`)
		var items []responseItem
		var deltas strings.Builder
		var last string
		for line := range strings.Lines(text) {
			data, ok := strings.CutPrefix(line, "data: ")
			if !ok {
				continue
			}
			var event struct {
				Type, Delta string
				Item        responseItem
				Response    response
			}
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				t.Fatalf("%v in %s", err, data)
			}
			deltas.WriteString(event.Delta)
			if event.Type == "response.output_item.done" {
				items = append(items, event.Item)
			}
			if last = event.Type; last == "response.completed" && event.Response.Usage.Output != 20 {
				t.Errorf("end = %s", data)
			}
		}
		checkItems(t, items)
		if deltas.String() != `hmyou said ünï hello{"path":"ä"}ö()` || last != "response.completed" {
			t.Errorf("deltas %q, last %s", deltas.String(), last)
		}
	})
	t.Run("reads the conversation", func(t *testing.T) {
		req := model.Requests()[0]
		results := req.Results()
		if req.System.String() != "Be good.\nBe quick." || req.Prompt() != "hello" || !req.Offers("read") || !req.Offers("n.exec") || req.Turn() != 2 ||
			len(results) != 2 || results[0] != (modeltest.Result{Tool: "read", Text: "file"}) || results[1] != (modeltest.Result{Tool: "exec", Text: "done"}) {
			t.Errorf("request = %+v, results %+v", req, results)
		}
	})
	t.Run("says what is wrong", func(t *testing.T) {
		for scenario, want := range map[string]string{"/busy": `"code":"rate_limit_exceeded"`, "/poor": `"code":"insufficient_quota"`} {
			if status, text := post(t, endpoint(scenario), modeltest.Key, question+`}`); status != 429 || !strings.Contains(text, want) {
				t.Errorf("%s: %d: %s", scenario, status, text)
			}
		}
		if status, text := post(t, endpoint(""), "another", question+`}`); status != 401 || !strings.Contains(text, "invalid_api_key") {
			t.Errorf("%d: %s", status, text)
		}
	})
	t.Run("holds a schema to the strict mode", func(t *testing.T) {
		for schema, want := range map[string]int{
			`{"type":"object","properties":{"a":{"type":["string","null"]}},"required":["a"],"additionalProperties":false}`:                      200,
			`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`:                                                400,
			`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`:                                                            400,
			`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"],"additionalProperties":false}`:      400,
			`{"type":"object","properties":{"a":{"type":"array","uniqueItems":true}},"required":["a"],"additionalProperties":false}`:             400,
			`{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"object"}]}},"required":["a"],"additionalProperties":false}`: 400,
		} {
			format := `,"text":{"format":{"type":"json_schema","strict":true,"name":"x","schema":` + schema + `}}}`
			if status, text := post(t, endpoint(""), modeltest.Key, question+format); status != want {
				t.Errorf("%s: %d, want %d: %s", schema, status, want, text)
			}
		}
	})
	t.Run("stops in the middle", func(t *testing.T) {
		res, err := ask(t, endpoint("/stall"), question+`,"stream":true}`)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		read := make([]byte, 0, 4096)
		for !strings.Contains(string(read), "response.output_item.done") {
			n, err := res.Body.Read(read[len(read):cap(read)])
			if err != nil {
				t.Fatalf("%v after %s", err, read)
			}
			read = read[:len(read)+n]
		}
		if strings.Contains(string(read), "response.completed") {
			t.Errorf("it ended: %s", read)
		}
	})
}
