package review

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// LensDir is where a repository keeps lenses of its own, one Markdown file each.
const LensDir = ".github/slipway/lenses"

// maxBrief bounds the text of a repository's lens, in bytes.
const maxBrief = 8 << 10

var lensName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)

// Own makes a lens of a file of a repository: its name is the file's, and what it
// looks for is the text. The error says why it is none.
func Own(file, text string) (Lens, error) {
	name := strings.TrimSuffix(path.Base(file), ".md")
	switch {
	case !lensName.MatchString(name):
		return Lens{}, fmt.Errorf("%s: the name of a lens is a letter and up to 39 of a-z, 0-9, - and _", file)
	case slices.Contains(lensNames(Lenses()), name) || name == auditor.Name || name == CommandsLens || name == DiffLens:
		return Lens{}, fmt.Errorf("%s: there is a lens %s already; give the file another name", file, name)
	case strings.TrimSpace(text) == "":
		return Lens{}, fmt.Errorf("%s: it says nothing", file)
	case len(text) > maxBrief:
		return Lens{}, fmt.Errorf("%s: %d bytes, at most %d", file, len(text), maxBrief)
	}
	l := lens("repository", "looks for what this repository wants to be looked for.")
	l.Name, l.brief = name, strings.TrimSpace(text)
	return l, nil
}

// Choose picks lenses by name, in the order of all. An unknown name is an error
// that lists those that there are.
func Choose(all []Lens, wanted []string) ([]Lens, error) {
	if len(wanted) == 0 {
		return all, nil
	}
	for _, name := range wanted {
		if !slices.Contains(lensNames(all), name) {
			return nil, fmt.Errorf("there is no lens %q; there are: %s", name, strings.Join(lensNames(all), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(l Lens) bool { return !slices.Contains(wanted, l.Name) }), nil
}

func lensNames(all []Lens) []string {
	out := make([]string, len(all))
	for i, l := range all {
		out[i] = l.Name
	}
	return out
}
