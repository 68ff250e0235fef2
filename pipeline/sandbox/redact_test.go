package sandbox_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"pgregory.net/rapid"
)

// editNote makes a note's worker and process older ones with the same pids.
func editNote(t *testing.T, text string) string {
	t.Helper()
	var n map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	maps.Copy(n, map[string]json.RawMessage{"worker_start": []byte("1"), "start": []byte("1"), "mark": []byte("1")})
	data, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRedactor(t *testing.T) {
	for name, tt := range map[string]struct {
		secrets []string
		writes  []string
		want    string
	}{
		"no secrets":             {nil, []string{"plain"}, "plain"},
		"an empty secret":        {[]string{""}, []string{"plain"}, "plain"},
		"in one write":           {[]string{"hunter2"}, []string{"key=hunter2;"}, "key=[redacted];"},
		"across writes":          {[]string{"hunter2"}, []string{"key=hun", "te", "r2;"}, "key=[redacted];"},
		"byte by byte":           {[]string{"ab"}, strings.Split("xaabab", ""), "xa[redacted][redacted]"},
		"a beginning only":       {[]string{"hunter2"}, []string{"hunte", "d"}, "hunted"},
		"a beginning at the end": {[]string{"hunter2"}, []string{"hunte"}, "hunte"},
		"the longer of two":      {[]string{"abc", "abcdef"}, []string{"abc", "def"}, "[redacted]"},
		"two that overlap":       {[]string{"abcd", "cdef"}, []string{"abcd", "ef."}, "[redacted]."},
		"one that holds another": {[]string{"bc", "abcd"}, []string{"abcd bc"}, "[redacted] [redacted]"},
		"at the very end":        {[]string{"aa"}, []string{"xaa"}, "x[redacted]"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := sandbox.NewRedactor(&out, tt.secrets...)
			for _, w := range tt.writes {
				if n, err := r.Write([]byte(w)); err != nil || n != len(w) {
					t.Fatalf("Write = %d, %v", n, err)
				}
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("got %q, want %q", out.String(), tt.want)
			}
		})
	}
}

func TestRedactorDoesNotDelayALine(t *testing.T) {
	var out strings.Builder
	r := sandbox.NewRedactor(&out, "hunter2")
	if _, err := r.Write([]byte("an event\n")); err != nil {
		t.Fatal(err)
	}
	if out.String() != "an event\n" {
		t.Errorf("only %q was passed on", out.String())
	}
}

func TestRedactorIsTheSameForEverySplit(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 30, -1)
	secret := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 1, 4, -1)
	rapid.Check(t, func(t *rapid.T) {
		input, secrets := text.Draw(t, "text"), rapid.SliceOfN(secret, 1, 3).Draw(t, "secrets")
		redact := func(parts ...string) string {
			var out strings.Builder
			r := sandbox.NewRedactor(&out, secrets...)
			for _, p := range parts {
				if _, err := r.Write([]byte(p)); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		whole := redact(input)
		if split := redact(strings.Split(input, "")...); split != whole {
			t.Errorf("%q byte by byte, %q at once", split, whole)
		}
		for _, part := range strings.Split(whole, "[redacted]") {
			for _, s := range secrets {
				if strings.Contains(part, s) {
					t.Errorf("%q shows %q", whole, s)
				}
			}
		}
	})
}
