package native_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/native"
)

const answerSchema = `{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]}`

func wantFailure(t *testing.T, err error, class runtime.Class, reason string) {
	t.Helper()
	failure, ok := errors.AsType[*runtime.Error](err)
	if !ok || failure.Class != class || !strings.Contains(failure.Reason, reason) {
		t.Fatalf("Run = %v, want a %s failure about %q", err, class, reason)
	}
}

func TestFailuresAreClassified(t *testing.T) {
	for name, row := range map[string]struct {
		turn   modeltest.Turn
		change func(*runtime.Call)
		class  runtime.Class
		reason string
		stop   string
	}{
		"overloaded":             {turn: modeltest.Turn{Status: 529, Error: "Overloaded"}, class: runtime.Transient, reason: "529"},
		"a gateway's fault":      {turn: modeltest.Turn{Status: 502, Error: "Bad gateway"}, class: runtime.Transient, reason: "502"},
		"too many requests":      {turn: modeltest.Turn{Status: 429, Error: "Slow down"}, class: runtime.Transient, reason: "429"},
		"a connection that ends": {turn: modeltest.Turn{Reset: true}, class: runtime.Transient, reason: "did not answer"},
		"a page of a proxy":      {turn: modeltest.Turn{Page: "<html>busy</html>"}, class: runtime.Transient, reason: `"text/html" and no event stream`},
		"no authority":           {turn: modeltest.Turn{Status: 401, Error: "invalid x-api-key"}, class: runtime.Fatal, reason: "check the key"},
		"not allowed":            {turn: modeltest.Turn{Status: 403, Error: "not for you"}, class: runtime.Fatal, reason: "check the key"},
		"no credit":              {turn: modeltest.Turn{Status: 400, Error: "Your credit balance is too low to access the API."}, class: runtime.Fatal, reason: "credit balance"},
		"no quota":               {turn: modeltest.Turn{Status: 429, Error: "You exceeded your current quota, please check your plan and billing details."}, class: runtime.Fatal, reason: "quota"},
		"an unknown model":       {turn: modeltest.Turn{Status: 404, Error: "model: nope"}, class: runtime.Fatal, reason: "model"},
		"a model that is none":   {turn: modeltest.Turn{Status: 400, Error: "nope is not a valid model ID"}, class: runtime.Fatal, reason: "not a valid model"},
		"a bad request":          {turn: modeltest.Turn{Status: 400, Error: "prompt is odd"}, class: runtime.Refused, reason: "prompt is odd"},
		"too long from the start": {
			turn: modeltest.Turn{Status: 400, Error: "prompt is too long: 250000 tokens > 200000 maximum"}, class: runtime.Refused, reason: "too long",
		},
		"no end of turns": {
			turn:   use("BASH", args{"command": "true"}),
			change: func(c *runtime.Call) { c.MaxTurns = 2 }, class: runtime.Refused, reason: "its 2 turns", stop: "max_turns",
		},
		"no budget left": {
			turn:   use("READ", args{"path": "a.txt"}),
			change: func(c *runtime.Call) { c.BudgetMicros = 200 }, class: runtime.Refused, reason: "$0.000200", stop: "budget",
		},
		"a schema that is none": {
			turn:   modeltest.Turn{Text: "Hm."},
			change: func(c *runtime.Call) { c.Schema = []byte(`{"type":`) }, class: runtime.Refused, reason: "schema",
		},
		"a directory that is gone": {
			turn:   modeltest.Turn{Text: "Hm."},
			change: func(c *runtime.Call) { c.Dir += "/gone" }, class: runtime.Refused, reason: "directory",
		},
	} {
		for _, d := range dialects {
			t.Run(name+" by "+d.name, func(t *testing.T) {
				t.Parallel()
				r, model := start(t, func(modeltest.Request) modeltest.Turn { return row.turn })
				c := call(t, d.model)
				put(t, c.Dir, "a.txt", "a\n")
				if row.change != nil {
					row.change(&c)
				}
				res, err := r.Run(t.Context(), c, quiet)
				wantFailure(t, err, row.class, row.reason)
				if row.stop != "" && res.Stop != row.stop {
					t.Errorf("Stop = %q, want %q", res.Stop, row.stop)
				}
				if n := len(model.Requests()); row.class == runtime.Fatal && n != 1 || n > 20 {
					t.Errorf("the model was asked %d times", n)
				}
			})
		}
	}
}

// A bad moment of the provider does not cost what was done before it.
func TestARequestIsTriedAgain(t *testing.T) {
	for _, d := range dialects {
		for name, bad := range map[string]modeltest.Turn{
			"after a fault":       {Status: 500, Error: "Internal"},
			"after its hint":      {Status: 429, Error: "Later", Retry: 1},
			"after a broken line": {Reset: true},
		} {
			t.Run(name+" by "+d.name, func(t *testing.T) {
				t.Parallel()
				var asked atomic.Int64
				r, _ := start(t, func(req modeltest.Request) modeltest.Turn {
					switch asked.Add(1) {
					case 1:
						return use("READ", args{"path": "a.txt"})
					case 2:
						return bad
					}
					return modeltest.Turn{Text: `{"results":` + fmt.Sprint(len(req.Results())) + `}`}
				})
				c := call(t, d.model)
				put(t, c.Dir, "a.txt", "a\n")
				var retries []string
				began := time.Now()
				res, err := r.Run(t.Context(), c, func(e runtime.Event) {
					if e.Kind == runtime.Retry {
						retries = append(retries, e.Text)
					}
				})
				if err != nil || string(res.Output) != `{"results":1}` || res.Turns != 2 || len(retries) != 1 {
					t.Errorf("%s, %d turns, %v, retries %q", res.Output, res.Turns, err, retries)
				}
				if bad.Retry > 0 && time.Since(began) < time.Duration(bad.Retry)*time.Second {
					t.Errorf("the hint was not waited for: %s", time.Since(began))
				}
			})
		}
	}
}

// raw is an endpoint that answers with prepared streams, one after the other,
// the last again and again.
func raw(t *testing.T, streams ...string) native.Options {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, streams[min(int(n.Add(1)), len(streams))-1])
	}))
	transport := &http.Transport{}
	t.Cleanup(func() { transport.CloseIdleConnections(); server.Close() })
	prices, err := runtime.NewPrices(nil)
	must(t, err)
	return native.Options{
		Box: box(t), Prices: prices, HTTP: &http.Client{Transport: transport},
		Providers: map[string]native.Provider{
			"anthropic": {Kind: native.Anthropic, BaseURL: server.URL, Key: "k"}, "openai": {Kind: native.OpenAI, BaseURL: server.URL + "/v1", Key: "k"},
		},
	}
}

const (
	messageStart = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":1000,\"output_tokens\":1}}}\n\n"
	messageText  = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"half of\"}}\n\n"
)

func messageEnd(stop string) string {
	return "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"" + stop + "\"},\"usage\":{\"output_tokens\":7}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
}

// What only a real provider's stream does.
func TestStreamsThatGoWrong(t *testing.T) {
	chunk := func(rest string) string {
		return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",` + rest + "}\n\n"
	}
	for name, row := range map[string]struct {
		model  string
		stream string
		class  runtime.Class
		reason string
	}{
		"an overload inside":        {"anthropic/m", messageStart + messageText + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", runtime.Transient, "529: Overloaded"},
		"no authority inside":       {"anthropic/m", messageStart + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"bad key\"}}\n\n", runtime.Fatal, "401: bad key"},
		"no end":                    {"anthropic/m", messageStart + messageText, runtime.Transient, "broke off"},
		"a refusal":                 {"anthropic/m", messageStart + messageText + messageEnd("refusal"), runtime.Refused, "refuses to go on: half of"},
		"a piece of no block":       {"anthropic/m", messageStart + "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n", runtime.Transient, "piece of block 3"},
		"an error by its code":      {"openai/m", chunk(`"choices":[{"index":0,"delta":{"content":"half"}}]`) + "data: {\"error\":{\"code\":401,\"message\":\"bad key\"}}\n\n", runtime.Fatal, "401: bad key"},
		"an error without one":      {"openai/m", "data: {\"error\":{\"message\":\"boom\",\"type\":\"server_error\"}}\n\n", runtime.Transient, "500: boom"},
		"no end of a chat":          {"openai/m", chunk(`"choices":[{"index":0,"delta":{"content":"half"}}]`), runtime.Transient, "broke off"},
		"an error as an end":        {"openai/m", chunk(`"choices":[{"index":0,"delta":{"content":"half"},"finish_reason":"error"}]`), runtime.Transient, "ended its answer with an error"},
		"a refusal in a chat":       {"openai/m", chunk(`"choices":[{"index":0,"delta":{"refusal":"I will not"},"finish_reason":"stop"}]`), runtime.Refused, "I will not"},
		"a filter":                  {"openai/m", chunk(`"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]`), runtime.Refused, "refuses"},
		"always at the length":      {"anthropic/m", messageStart + messageText + messageEnd("max_tokens"), runtime.Refused, "its 3 turns"},
		"always at the window":      {"anthropic/m", messageStart + messageText + messageEnd("model_context_window_exceeded"), runtime.Refused, "its 3 turns"},
		"no words and no tools":     {"anthropic/m", messageStart + messageEnd("max_tokens"), runtime.Refused, "its 3 turns"},
		"an answer of a wrong type": {"anthropic/m", "event: message_start\ndata: 7\n\n", runtime.Transient, "did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := native.New(raw(t, row.stream))
			must(t, err)
			c := call(t, row.model)
			c.MaxTurns = 3
			_, err = r.Run(t.Context(), c, quiet)
			wantFailure(t, err, row.class, row.reason)
		})
	}
}

// Compatible providers differ where OpenAI says nothing.
func TestDialectsOfChat(t *testing.T) {
	chunk := func(delta string) string {
		return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":` + delta + "}]}\n\n"
	}
	end := func(usage string) string {
		return `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
			`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":` + usage + "}\n\ndata: [DONE]\n\n"
	}
	const usage = `{"prompt_tokens":100,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":40,"cache_write_tokens":20},"cost":0.0123}`
	reads := chunk(`{"reasoning_content":"let me "}`) + chunk(`{"reasoning_content":"see"}`) +
		chunk(`{"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"READ","arguments":"{\"path\":\"a.txt\"}"}}]}`) +
		chunk(`{"tool_calls":[{"index":0,"id":"y","type":"function","function":{"name":"READ","arguments":"{\"path\":\"b.txt\"}"}}]}`) +
		chunk(`{"tool_calls":[{"index":1,"id":"","function":{"name":"READ","arguments":""}}]}`) + end(usage)
	w := record(t)
	o := raw(t, reads, chunk(`{"content":"{\"done\":true}"}`)+end(usage))
	o.HTTP = &http.Client{Transport: w}
	r, err := native.New(o)
	must(t, err)
	c := call(t, "openai/m")
	put(t, c.Dir, "a.txt", "apple\n")
	put(t, c.Dir, "b.txt", "berry\n")
	c.Effort = "high"
	var thoughts []string
	res, err := r.Run(t.Context(), c, func(e runtime.Event) {
		if e.Kind == runtime.Thinking {
			thoughts = append(thoughts, e.Text)
		}
	})
	if err != nil || string(res.Output) != `{"done":true}` {
		t.Fatalf("%s, %v", res.Output, err)
	}
	if want := (runtime.Usage{Input: 80, Output: 20, CacheRead: 80, CacheWrite: 40}); res.Usage != want || res.CostMicros != 24_600 {
		t.Errorf("used %+v for %d, want %+v for what the provider says", res.Usage, res.CostMicros, want)
	}
	if !slices.Equal(thoughts, []string{"let me see"}) {
		t.Errorf("thoughts = %q", thoughts)
	}
	for _, want := range []string{
		`"reasoning_content":"let me see"`, `"reasoning_effort":"high"`, `"tool_call_id":"x"`, `"tool_call_id":"y"`, `apple`, `berry`, `"tool_call_id":"call_2"`,
		`"include_usage":true`,
	} {
		if !strings.Contains(w.last(), want) {
			t.Errorf("the second request lacks %s: %s", want, w.last())
		}
	}
}

// What stays the same is marked for the provider's cache, and thoughts go back
// as they came.
func TestTheMessagesAPIIsAskedWell(t *testing.T) {
	w := record(t)
	r, _ := startAt(t, w, func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) < 3 {
			turn := use("GLOB", args{"pattern": "*"})
			turn.Thinking, turn.Usage = "hm", modeltest.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}
			return turn
		}
		return modeltest.Turn{Text: "Done.", Usage: modeltest.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4}}
	})
	c := call(t, "anthropic/claude-opus-5-5")
	c.Effort = "low"
	res, err := r.Run(t.Context(), c, quiet)
	must(t, err)
	if want := (runtime.Usage{Input: 4, Output: 8, CacheRead: 12, CacheWrite: 16}); res.Usage != want || res.CostMicros == 0 {
		t.Errorf("used %+v for %d, want %+v", res.Usage, res.CostMicros, want)
	}
	var sent struct {
		System []struct {
			Cache json.RawMessage `json:"cache_control"`
		} `json:"system"`
		Messages []struct {
			Content []map[string]json.RawMessage `json:"content"`
		} `json:"messages"`
		Stream bool            `json:"stream"`
		Output json.RawMessage `json:"output_config"`
		Choice json.RawMessage `json:"tool_choice"`
	}
	must(t, json.Unmarshal([]byte(w.last()), &sent))
	var marked []int
	for i, m := range sent.Messages {
		if m.Content[len(m.Content)-1]["cache_control"] != nil {
			marked = append(marked, i)
		}
	}
	if !slices.Equal(marked, []int{4, 6}) || len(sent.System) != 1 || sent.System[0].Cache == nil {
		t.Errorf("marked are the messages %v of %d, and the instructions: %+v", marked, len(sent.Messages), sent.System)
	}
	if first := sent.Messages[1].Content[0]; string(first["thinking"]) != `"hm"` || string(first["signature"]) != `"c2lnbmVk"` {
		t.Errorf("the thought came back as %s", first)
	}
	if !sent.Stream || string(sent.Output) != `{"effort":"low"}` || sent.Choice != nil {
		t.Errorf("stream %v, output_config %s, tool_choice %s", sent.Stream, sent.Output, sent.Choice)
	}
}

// Reading tools and functions of one turn run side by side; others wait for
// each other.
func TestToolsOfOneTurn(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			r, model := start(t, func(req modeltest.Request) modeltest.Turn {
				switch len(req.Results()) {
				case 0:
					ask := modeltest.Call{Tool: "subagent", Input: args{"task": "wait for the others"}}
					return modeltest.Turn{Calls: []modeltest.Call{ask, ask, {Tool: "READ", Input: args{"path": "a.txt"}}, ask}}
				case 4:
					return modeltest.Turn{Calls: []modeltest.Call{
						{Tool: "WRITE", Input: args{"path": "a.txt", "content": "new"}}, {Tool: "READ", Input: args{"path": "a.txt"}},
						{Tool: "BASH", Input: args{"command": "echo more >>a.txt"}}, {Tool: "READ", Input: args{"path": "a.txt"}},
					}}
				}
				return modeltest.Turn{Text: "Done."}
			})
			var meet sync.WaitGroup
			meet.Add(3)
			c := call(t, d.model)
			put(t, c.Dir, "a.txt", "old\n")
			c.Functions = []runtime.Function{{
				Name: "subagent", Description: "asks another", Input: json.RawMessage(`{"type":"object","properties":{"task":{"type":"string"}}}`),
				Call: func(_ context.Context, input json.RawMessage) (json.RawMessage, error) {
					meet.Done()
					meet.Wait() // returns only if all three run at the same time
					if !strings.Contains(string(input), "wait") {
						return nil, errors.New("no task")
					}
					return json.RawMessage(`{"found":1}`), nil
				},
			}}
			if _, err := r.Run(t.Context(), c, quiet); err != nil {
				t.Fatal(err)
			}
			requests := model.Requests()
			var got []string
			for _, result := range requests[len(requests)-1].Results() {
				got = append(got, strings.TrimSpace(result.Text))
			}
			want := []string{`{"found":1}`, `{"found":1}`, "1\told", `{"found":1}`, "a.txt has 1 lines now.", "1\tnew", "(nothing)", "1\tnewmore"}
			if !slices.Equal(got, want) {
				t.Errorf("the tools said %q, want %q", got, want)
			}
		})
	}
}

// A function of the caller may fail, and take longer than the agent may be silent.
func TestFunctionsOfTheCaller(t *testing.T) {
	r, model := start(t, func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return modeltest.Turn{Calls: []modeltest.Call{{Tool: "slow"}, {Tool: "broken"}}}
		}
		return modeltest.Turn{Text: "Done."}
	})
	c := call(t, dialects[0].model)
	c.Idle = 300 * time.Millisecond
	c.Functions = []runtime.Function{
		{Name: "slow", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			<-time.After(2 * c.Idle)
			return json.RawMessage(`"late"`), nil
		}},
		{Name: "broken", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New("it is broken")
		}},
	}
	if _, err := r.Run(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	requests := model.Requests()
	got := requests[len(requests)-1].Results()
	if len(got) != 2 || got[0].Text != `"late"` || got[0].IsError || got[1].Text != "it is broken" || !got[1].IsError {
		t.Errorf("the functions said %+v", got)
	}
}

// A function that panics ends in the goroutine of its call, where the slot's
// boundary is.
func TestAPanicReachesTheCaller(t *testing.T) {
	r, _ := start(t, func(modeltest.Request) modeltest.Turn {
		return modeltest.Turn{Calls: []modeltest.Call{{Tool: "broken"}}}
	})
	c := call(t, dialects[0].model)
	c.Functions = []runtime.Function{{Name: "broken", Call: func(context.Context, json.RawMessage) (json.RawMessage, error) { panic("a fault of ours") }}}
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "a fault of ours") {
			t.Errorf("recovered %q", got)
		}
	}()
	_, err := r.Run(t.Context(), c, quiet)
	t.Errorf("Run = %v", err)
}

func TestToolsThatAreNotThere(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			r, model := start(t, func(req modeltest.Request) modeltest.Turn {
				switch len(req.Results()) {
				case 0:
					return modeltest.Turn{Calls: []modeltest.Call{{Tool: "WRITE", Input: args{"path": "a", "content": "x"}}, {Tool: "web_search"}, {Tool: "WRITE"}, {Tool: "answer"}}}
				}
				return modeltest.Turn{Text: "Done."}
			})
			c := call(t, d.model)
			c.Tools = []runtime.Tool{runtime.Read, runtime.Grep}
			var notices []string
			res, err := r.Run(t.Context(), c, func(e runtime.Event) {
				if e.Kind == runtime.Notice {
					notices = append(notices, e.Text)
				}
			})
			must(t, err)
			if want := []string{"WRITE", "answer", "web_search"}; !slices.Equal(res.Denials, want) || len(notices) != 4 {
				t.Errorf("denials %q, notices %q", res.Denials, notices)
			}
			requests := model.Requests()
			if first := requests[0]; !first.Offers("READ") || !first.Offers("GREP") || len(first.Tools) != 2 {
				t.Errorf("the model was offered %+v", first.Tools)
			}
			for _, result := range requests[1].Results() {
				if !result.IsError && d.name == "messages" || !strings.Contains(result.Text, "not available to you. There are: READ, GREP.") {
					t.Errorf("%+v", result)
				}
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	answer := func(value any) modeltest.Turn { return use("answer", args{"answer": value}) }
	for name, row := range map[string]struct {
		schema string
		turns  []modeltest.Turn
		want   string // the output
		asked  int
	}{
		"at once":                    {answerSchema, []modeltest.Turn{answer(42)}, `{"answer":42}`, 1},
		"corrected":                  {answerSchema, []modeltest.Turn{answer("x"), answer(42)}, `{"answer":42}`, 2},
		"never right":                {answerSchema, []modeltest.Turn{answer("x")}, `{"answer":"x"}`, 3},
		"in words":                   {answerSchema, []modeltest.Turn{{Text: "It is\n```json\n{\"answer\":42}\n```"}}, `{"answer":42}`, 1},
		"wrong in words, then right": {answerSchema, []modeltest.Turn{{Text: `{"answer":"x"}`}, answer(42)}, `{"answer":42}`, 2},
		"asked for":                  {answerSchema, []modeltest.Turn{{Text: "I am done."}, answer(42)}, `{"answer":42}`, 2},
		"never given":                {answerSchema, []modeltest.Turn{{Text: "I would rather not."}}, ``, 3},
		"a list":                     {`{"type":"array","items":{"$ref":"#/$defs/n"},"$defs":{"n":{"type":"integer"}}}`, []modeltest.Turn{use("answer", args{"value": []int{1, 2}})}, `[1,2]`, 1},
		"a list that lacks its name": {`{"type":"array"}`, []modeltest.Turn{use("answer", args{"list": []int{1}}), use("answer", args{"value": []int{1}})}, `[1]`, 2},
		"beside other work":          {answerSchema, []modeltest.Turn{{Calls: []modeltest.Call{{Tool: "BASH", Input: args{"command": "true"}}, {Tool: "answer", Input: args{"answer": 42}}}}}, `{"answer":42}`, 1},
		"beside work that failed":    {answerSchema, []modeltest.Turn{{Calls: []modeltest.Call{{Tool: "answer", Input: args{"answer": 1}}, {Tool: "BASH", Input: args{"command": "false"}}}}, answer(2)}, `{"answer":2}`, 2},
	} {
		for _, d := range dialects {
			t.Run(name+" by "+d.name, func(t *testing.T) {
				r, model := start(t, func(req modeltest.Request) modeltest.Turn { return row.turns[min(req.Turn(), len(row.turns)-1)] })
				c := call(t, d.model)
				c.Schema = json.RawMessage(row.schema)
				res, err := r.Run(t.Context(), c, quiet)
				must(t, err)
				if string(res.Output) != row.want || len(model.Requests()) != row.asked || res.Session == "" {
					t.Errorf("%s after %d requests, want %s after %d", res.Output, len(model.Requests()), row.want, row.asked)
				}
			})
		}
	}
}

// One more chance is announced before the turns are used up.
func TestTheLastTurnIsAnnounced(t *testing.T) {
	r, _ := start(t, func(req modeltest.Request) modeltest.Turn {
		if strings.Contains(req.Text(), "One turn is left") {
			return use("answer", args{"answer": 1})
		}
		return use("GLOB", args{"pattern": "*"})
	})
	c := call(t, dialects[0].model)
	c.Schema, c.MaxTurns = json.RawMessage(answerSchema), 4
	if res, err := r.Run(t.Context(), c, quiet); err != nil || string(res.Output) != `{"answer":1}` || res.Turns != 4 {
		t.Errorf("%s after %d turns, %v", res.Output, res.Turns, err)
	}
}

func TestRepairTurns(t *testing.T) {
	for name, row := range map[string]struct {
		session func(first runtime.Result) string
		model   string
		knows   bool // the model sees what was said before
	}{
		"in the session":               {func(first runtime.Result) string { return first.Session }, dialects[0].model, true},
		"in the session by another":    {func(first runtime.Result) string { return first.Session }, dialects[1].model, true},
		"when the session is gone":     {func(runtime.Result) string { return "of a process that was killed" }, dialects[0].model, false},
		"when there never was session": {func(runtime.Result) string { return "" }, dialects[1].model, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, model := start(t, func(req modeltest.Request) modeltest.Turn {
				if strings.Contains(req.Text(), "too small") {
					return use("answer", args{"answer": 42})
				}
				if len(req.Results()) == 0 {
					turn := use("READ", args{"path": "a.txt"})
					turn.Thinking = "I had better look."
					return turn
				}
				return use("answer", args{"answer": 1})
			})
			c := call(t, dialects[0].model)
			put(t, c.Dir, "a.txt", "the file\n")
			c.Schema = json.RawMessage(answerSchema)
			first, err := r.Run(t.Context(), c, quiet)
			must(t, err)
			c.Model, c.Session = row.model, row.session(first)
			c.Repair = &runtime.Repair{Previous: string(first.Output), Errors: []string{"answer is too small", "and odd"}}
			res, err := r.Run(t.Context(), c, quiet)
			if err != nil || string(res.Output) != `{"answer":42}` || res.Turns != 1 {
				t.Fatalf("%s after %d turns, %v", res.Output, res.Turns, err)
			}
			requests := model.Requests()
			last := requests[len(requests)-1]
			results := last.Results()
			if got := len(results) > 0 && strings.Contains(results[0].Text, "the file"); got != row.knows {
				t.Errorf("it knows what was said before: %v, want %v", got, row.knows)
			}
			if got := strings.Contains(last.Text(), `{"answer":1}`); got == row.knows {
				t.Errorf("the previous answer is quoted: %v", got)
			}
			if !strings.Contains(last.Text(), "and odd") {
				t.Errorf("the model was told %q", last.Text())
			}
		})
	}
}

// Nearly full, the conversation is cut where it is oldest; when that is not
// enough it is summed up, and the work goes on.
func TestCompaction(t *testing.T) {
	for _, d := range dialects {
		for name, row := range map[string]struct {
			window int64
			bytes  int // of the file that is read again and again
			cut    string
		}{
			"old results are cut": {80_000, 30_000, "old results of tools were cut"},
			"it is summed up":     {8_000, 6_000, "the conversation was summed up"},
		} {
			t.Run(name+" by "+d.name, func(t *testing.T) {
				const reads = 12
				var did atomic.Int64
				model := modeltest.New(t, func(req modeltest.Request) modeltest.Turn {
					size := len(req.Text())
					for _, result := range req.Results() {
						size += len(result.Text)
					}
					used := modeltest.Usage{Input: size / 3, Output: 10}
					switch {
					case strings.Contains(req.Prompt(), "Write down"):
						return modeltest.Turn{Text: fmt.Sprintf("SUMMARY: %d are read", did.Load()), Usage: used}
					case did.Add(1) <= reads:
						turn := use("READ", args{"path": "a.txt"})
						turn.Thinking, turn.Usage = "next", used
						return turn
					}
					return modeltest.Turn{Text: `{"done":true}`, Usage: used}
				})
				opts := options(t, model)
				for name, p := range opts.Providers {
					p.Window = row.window
					opts.Providers[name] = p
				}
				r, err := native.New(opts)
				must(t, err)
				c := call(t, d.model)
				put(t, c.Dir, "a.txt", strings.Repeat(strings.Repeat("x", 99)+"\n", row.bytes/100))
				var notes []string
				res, err := r.Run(t.Context(), c, func(e runtime.Event) {
					if e.Kind == runtime.Notice {
						notes = append(notes, e.Text)
					}
				})
				must(t, err)
				if string(res.Output) != `{"done":true}` || !strings.Contains(strings.Join(notes, "\n"), row.cut) {
					t.Errorf("%s, notes %q", res.Output, notes)
				}
				for i, req := range model.Requests() {
					if !strings.Contains(req.Text(), c.Prompt) {
						t.Errorf("request %d has lost the task", i)
					}
				}
			})
		}
	}
}

// A provider that finds the conversation too long, whatever we reckoned, is
// asked again with a shorter one.
func TestAConversationThatIsTooLongAfterAll(t *testing.T) {
	r, _ := start(t, func(req modeltest.Request) modeltest.Turn {
		switch {
		case strings.Contains(req.Prompt(), "Write down"):
			return modeltest.Turn{Text: "SUMMARY"}
		case strings.Contains(req.Text(), "SUMMARY"):
			return modeltest.Turn{Text: `{"done":true}`}
		case len(req.Results()) == 3:
			return modeltest.Turn{Status: 400, Error: "prompt is too long: 200001 tokens > 200000 maximum"}
		}
		return use("READ", args{"path": "a.txt"})
	})
	c := call(t, dialects[0].model)
	put(t, c.Dir, "a.txt", "a\n")
	if res, err := r.Run(t.Context(), c, quiet); err != nil || string(res.Output) != `{"done":true}` {
		t.Errorf("%s, %v", res.Output, err)
	}
}

// The key of a provider is shown to nobody, wherever it turns up.
func TestKeysAreHidden(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			r, _ := start(t, func(req modeltest.Request) modeltest.Turn {
				if len(req.Results()) == 0 {
					turn := use("BASH", args{"command": "echo " + modeltest.Key})
					turn.Thinking, turn.Text = "the key "+modeltest.Key, "it is "+modeltest.Key
					return turn
				}
				return modeltest.Turn{Status: 400, Error: "odd key " + modeltest.Key}
			})
			var seen strings.Builder
			res, err := r.Run(t.Context(), call(t, d.model), func(e runtime.Event) { _, _ = fmt.Fprintf(&seen, "%+v %s\n", e, e.Input) })
			wantFailure(t, err, runtime.Refused, "odd key")
			if all := seen.String() + fmt.Sprintf("%+v %v", res, err); strings.Contains(all, modeltest.Key) || !strings.Contains(all, "[key of ") {
				t.Errorf("shown: %s", all)
			}
		})
	}
}

// A model without a price costs nothing that we know of, which is said.
func TestAnUnknownPriceIsSaid(t *testing.T) {
	r, _ := start(t, func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return use("GLOB", args{"pattern": "*"})
		}
		return modeltest.Turn{Text: "Done."}
	})
	var notes []string
	res, err := r.Run(t.Context(), call(t, "openai/house-model"), func(e runtime.Event) {
		if e.Kind == runtime.Notice {
			notes = append(notes, e.Text)
		}
	})
	budgeted := call(t, "openai/house-model")
	budgeted.BudgetMicros = 1
	_, refused := r.Run(t.Context(), budgeted, quiet)
	wantFailure(t, refused, runtime.Fatal, "add it to prices in the server's file")
	if err != nil || res.CostMicros != 0 || len(notes) != 1 || !strings.Contains(notes[0], "no price is known of openai/house-model") {
		t.Errorf("%d, %v, notes %q", res.CostMicros, err, notes)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	b := box(t)
	for name, row := range map[string]struct {
		opts native.Options
		want string
	}{
		"no sandbox":      {native.Options{Providers: map[string]native.Provider{"a": {Kind: native.OpenAI, BaseURL: "http://x"}}}, "no sandbox"},
		"no provider":     {native.Options{Box: b}, "no provider"},
		"no address":      {native.Options{Box: b, Providers: map[string]native.Provider{"a": {Kind: native.OpenAI}}}, "provider a has no base URL"},
		"an unknown kind": {native.Options{Box: b, Providers: map[string]native.Provider{"a": {Kind: "gopher", BaseURL: "gopher://x"}}}, `unknown kind "gopher"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := native.New(row.opts); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("New = %v, want %q", err, row.want)
			}
		})
	}
}

// The environment of this process is no source of credentials or addresses, and
// a redirect does not carry the key elsewhere.
func TestKeysGoWhereTheyBelong(t *testing.T) {
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "from-the-environment")
	t.Setenv("OPENAI_ORG_ID", "from-the-environment")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	var headers []http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers = append(headers, r.Header)
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	r, err := native.New(native.Options{Box: box(t), Providers: map[string]native.Provider{
		"anthropic": {Kind: native.Anthropic, BaseURL: server.URL, Key: "ours"}, "openai": {Kind: native.OpenAI, BaseURL: server.URL, Key: "ours"},
	}})
	must(t, err)
	for _, d := range dialects {
		_, err := r.Run(t.Context(), call(t, d.model), quiet)
		wantFailure(t, err, runtime.Refused, "redirects to "+elsewhere.URL)
	}
	for _, h := range headers {
		if text := fmt.Sprint(h); strings.Contains(text, "from-the-environment") || !strings.Contains(text, "ours") {
			t.Errorf("sent: %s", text)
		}
	}
	if len(headers) != 2 {
		t.Errorf("%d requests arrived", len(headers))
	}
}

// Two hundred agents that are canceled in mid-command leave no process.
func TestCanceledCrowdLeavesNoProcess(t *testing.T) {
	const agents = 200
	command := "sleep 86397.25"
	r, _ := start(t, func(modeltest.Request) modeltest.Turn {
		return use("BASH", args{"command": "setsid " + command + " & setsid --wait " + command})
	})
	stop := errors.New("the build was canceled")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan error, agents)
	for i := range agents {
		c := call(t, dialects[i%2].model)
		go func() {
			_, err := r.Run(ctx, c, quiet)
			ended <- err
		}()
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for late := time.After(2 * time.Minute); len(processes(t, command)) < 2*agents; {
		select {
		case err := <-ended:
			t.Fatalf("an agent ended too early: %v", err)
		case <-late:
			t.Fatalf("only %d processes run", len(processes(t, command)))
		case <-poll.C:
		}
	}
	cancel(stop)
	for range agents {
		if err := <-ended; !errors.Is(err, stop) {
			t.Errorf("Run = %v, want the cause", err)
		}
	}
	if left := processes(t, command); len(left) > 0 {
		t.Errorf("%d processes are left: %s", len(left), left[0])
	}
}
