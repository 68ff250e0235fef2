package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// LastJSON returns the last JSON object or array in text, wherever it stands:
// alone, after prose, in a code fence. A text that is one JSON value of another
// kind is that value. It fails closed: when the text ends inside a value, the
// answer was cut off and nothing is returned, not the piece before or inside.
func LastJSON(text string) (value json.RawMessage, ok bool) {
	if whole := strings.TrimSpace(text); json.Valid([]byte(whole)) {
		return json.RawMessage(whole), true
	}
	rest := text
	for {
		start := strings.IndexAny(rest, "{[")
		if start < 0 {
			return value, ok
		}
		rest = rest[start:]
		d := json.NewDecoder(strings.NewReader(rest))
		var found json.RawMessage
		err := d.Decode(&found)
		if err == nil {
			value, ok = bytes.Clone(found), true
			rest = rest[d.InputOffset():]
			continue
		}
		syntax, is := errors.AsType[*json.SyntaxError](err)
		if !is || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, false
		}
		// Go on at the character that was wrong: it may open the next value.
		// No character is read twice, so hostile text costs no more than other.
		rest = rest[max(1, int(syntax.Offset)-1):]
	}
}
