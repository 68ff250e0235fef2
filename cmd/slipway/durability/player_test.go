package durability_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// playerScript plays a script as a real program in the sandbox: one directory
// per step, with what it says and the files that it leaves; the commit in the
// steps of the CI gate is left out. While the file hold is there, it says its
// first line and waits, with a child of its own.
const playerScript = `step=$(sed -n 's/^{"version":1,"step":"\([^"]*\)".*/\1/p' | sed 's/^ci-[0-9a-f]*/ci/' | tr / -)
here=${0%/*}/$step
[ -d "$here" ] || { echo "there is no recording of step $step" >&2; exit 64; }
head -n 1 "$here/says"
while [ -e "$here/hold" ]; do sleep 0.1; done
[ ! -e "$here/error" ] || { cat "$here/error" >&2; exit 1; }
[ ! -d "$here/files" ] || cp -R "$here/files/." .
tail -n 1 "$here/says"
`

// A player is an agent program for runtime command.
type player struct{ dir string }

// player puts the script where the program finds it.
func (s script) player(t *testing.T) player {
	t.Helper()
	p := player{dir: t.TempDir()}
	put(t, filepath.Join(p.dir, "player.sh"), playerScript)
	for _, r := range s.calls {
		here := filepath.Join(p.dir, strings.ReplaceAll(r.Step, "/", "-"))
		result, err := json.Marshal(map[string]json.RawMessage{"type": json.RawMessage(`"result"`), "output": r.Result.Output})
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(here, "says"), fmt.Sprintf("{\"type\":\"text\",\"text\":%q}\n%s\n", r.Events[0].Text, result))
		if r.Error != nil {
			put(t, filepath.Join(here, "error"), r.Error.Reason+"\n")
		}
		for name, text := range r.Files {
			put(t, filepath.Join(here, "files", name), text)
		}
	}
	return p
}

// flags make a build use the player.
func (p player) flags() []string {
	return []string{"--runtime", "command", "--agent-command", "sh " + filepath.Join(p.dir, "player.sh")}
}

func (p player) hold(t *testing.T, step string) {
	t.Helper()
	put(t, p.holdFile(step), "")
}

func (p player) release(t *testing.T, step string) {
	t.Helper()
	if err := os.Remove(p.holdFile(step)); err != nil {
		t.Fatal(err)
	}
}

func (p player) holdFile(step string) string {
	return filepath.Join(p.dir, strings.ReplaceAll(step, "/", "-"), "hold")
}
