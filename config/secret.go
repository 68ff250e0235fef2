package config

import (
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// A Secret is a value that no page, log or file may show: whatever prints or
// marshals it gets "[redacted]". Keep it in exported fields or variables: fmt
// does not ask unexported fields how they want to be printed.
type Secret string

// Reveal returns the value, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// Format prints "[redacted]" for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// String is "[redacted]".
func (s Secret) String() string { return redacted }

// LogValue is "[redacted]".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText is "[redacted]", for JSON and every other text encoding.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalYAML is "[redacted]".
func (s Secret) MarshalYAML() (any, error) { return redacted, nil }
