package forge_test

import (
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

func TestMarkedTicket(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"ours":                       {"Adds a greeting.\n\n" + forge.PullMarker(42, 12) + "as=draft -->", 12},
		"with Windows line ends":     {"Adds.\r\n\r\n" + forge.PullMarker(42, 7) + "as=check -->\r\n", 7},
		"another App's":              {forge.PullMarker(41, 12) + "as=draft -->", 0},
		"an App whose id begins so":  {forge.PullMarker(421, 12) + "as=draft -->", 0},
		"quoted above our own":       {"> " + forge.PullMarker(42, 3) + "x -->\n\n" + forge.PullMarker(42, 12) + "as=draft -->", 12},
		"no number":                  {strings.Replace(forge.PullMarker(42, 12), "12", "x12", 1), 0},
		"a negative number":          {forge.PullMarker(42, -12), 0},
		"a number that is too large": {strings.Replace(forge.PullMarker(42, 12), "12", strings.Repeat("9", 40), 1), 0},
		"cut off":                    {strings.TrimSpace(forge.PullMarker(42, 12)), 0},
		"nothing":                    {"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := forge.MarkedTicket(c.body, 42); ok != (c.want > 0) || ok && got != c.want {
				t.Errorf("ticket %d, %v; want %d", got, ok, c.want)
			}
		})
	}
}
