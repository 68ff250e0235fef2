package native

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// answerName is the tool with which a model gives its answer. A tool is the way
// that both APIs have; it is not forced on a model, since some refuse that.
const answerName = "answer"

const answerText = `Gives your final answer and ends the conversation. Use it once, when all work is done, and put the whole answer into its input.`

// A contract is the schema that the answer of a call has to fit.
type contract struct {
	root    map[string]json.RawMessage
	wrapped bool // the input of a tool is an object: another answer is its field value
	fits    *jsonschema.Resolved
}

const wrapField = "value"

func newContract(schema json.RawMessage) (*contract, error) {
	var parsed jsonschema.Schema
	if err := json.Unmarshal(schema, &parsed); err != nil {
		return nil, err
	}
	fits, err := parsed.Resolve(nil)
	if err != nil {
		return nil, err
	}
	c := &contract{fits: fits}
	if parsed.Type == "object" {
		return c, json.Unmarshal(schema, &c.root)
	}
	c.wrapped = true
	return c, c.wrap(schema)
}

// wrap makes a tool's schema of one that is no object. References begin at the
// root, so definitions move there.
func (c *contract) wrap(schema json.RawMessage) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(schema, &fields); err != nil {
		return err
	}
	c.root = make(map[string]json.RawMessage)
	for _, key := range []string{"$defs", "definitions"} {
		if defs, ok := fields[key]; ok {
			c.root[key] = defs
			delete(fields, key)
		}
	}
	properties, err := json.Marshal(map[string]any{wrapField: fields})
	if err != nil {
		return err
	}
	c.root["type"] = json.RawMessage(`"object"`)
	c.root["properties"] = properties
	c.root["required"] = json.RawMessage(`["` + wrapField + `"]`)
	return nil
}

func (c *contract) tool() tool {
	return tool{name: answerName, description: answerText, schema: c.root}
}

// read takes the answer out of the tool's input.
func (c *contract) read(input json.RawMessage) (json.RawMessage, error) {
	if !c.wrapped {
		return input, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(input, &fields); err != nil {
		return nil, err
	}
	value, ok := fields[wrapField]
	if !ok {
		return nil, fmt.Errorf("the field %q is missing", wrapField)
	}
	return value, nil
}

// check says how a value does not fit, in words for the model; empty means that
// it does.
func (c *contract) check(value json.RawMessage) (problem string) {
	var plain any
	if err := json.Unmarshal(value, &plain); err != nil {
		return err.Error()
	}
	if err := c.fits.Validate(plain); err != nil {
		return err.Error()
	}
	return ""
}

func (a *agent) isAnswer(c block) bool { return a.contract != nil && c.name == answerName }

// take judges an answer. It is not taken beside a tool that failed: the model
// had not seen that. One that does not fit goes back a few times; after that the
// caller gets it as it is.
func (a *agent) take(c block, others []block) (block, bool) {
	a.emit(runtime.Event{Kind: runtime.ToolCall, Tool: answerName, Input: c.input})
	if slices.ContainsFunc(others, func(b block) bool { return b.failed }) {
		return a.result(c, failed("Not taken: another tool that you used at the same time failed. Look at its result, then answer again.")), false
	}
	problem := c.bad
	value, err := a.contract.read(c.input)
	switch {
	case problem != "":
		value = nil
	case err != nil:
		problem = err.Error()
	default:
		problem = a.contract.check(value)
	}
	if problem == "" || a.repairs == maxRepairs {
		a.output, a.stop = value, string(stopDone)
		return a.result(c, result{text: "Taken."}), true
	}
	a.repairs++
	return a.result(c, failed("The answer does not fit: %s. Answer again, in whole.", problem)), false
}
