package evidence

import "strings"

// maxTail bounds what is kept of an output. Of a failing run the end matters.
const maxTail = 16 << 10

// tail is a writer that keeps the end of what is written.
type tail struct {
	kept []byte
	cut  bool
}

const cutNote = "[… the beginning is cut …]\n"

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - (maxTail - len(cutNote)); over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
		t.cut = true
	}
	return len(p), nil
}

// String is valid UTF-8 of at most maxTail bytes, from the start of a line where
// something was cut.
func (t *tail) String() string {
	text := string(t.kept)
	if !t.cut {
		return strings.ToValidUTF8(text, "")
	}
	if _, rest, ok := strings.Cut(text, "\n"); ok && rest != "" {
		text = rest
	}
	return cutNote + strings.ToValidUTF8(text, "")
}
