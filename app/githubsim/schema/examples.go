package schema

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed examples.json.gz
var examplesJSON []byte

// An Example is the payload of a webhook as GitHub has sent one.
type Example struct {
	Event   string
	Payload json.RawMessage
}

// Examples are those that are published, of every event.
func Examples() ([]Example, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(examplesJSON))
	if err != nil {
		return nil, fmt.Errorf("unpack the examples: %w", err)
	}
	var events []struct {
		Name     string            `json:"name"`
		Examples []json.RawMessage `json:"examples"`
	}
	if err := json.NewDecoder(unpacked).Decode(&events); err != nil {
		return nil, fmt.Errorf("parse the examples: %w", err)
	}
	var all []Example
	for _, e := range events {
		for _, payload := range e.Examples {
			all = append(all, Example{Event: e.Name, Payload: payload})
		}
	}
	return all, nil
}
