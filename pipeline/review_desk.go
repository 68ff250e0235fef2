package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/review"
)

// ground is the site as this review sees it: agents find the base's instructions
// in their worktree, whatever the change makes of them.
func (v *reviewing) ground() review.Site {
	return pullSite{reviewSite: reviewSite{v.site}, mirror: v.mirror, base: v.fold.pinned().BaseTip, from: v.fold.pinned().BaseSHA}
}

// pullSite is a reviewSite whose desks have the instruction files of the base.
type pullSite struct {
	reviewSite
	mirror     *repo.Mirror
	base, from string // commits: the tip, and where the change begins
}

// Desk names a worktree that nobody writes to.
func (s pullSite) Desk(name, commit string) agent.Workspace {
	return &honestDesk{Workspace: s.reviewSite.Desk(name, commit), site: s, commit: commit}
}

// honestDesk is a worktree of a change without what the change tells agents.
type honestDesk struct {
	agent.Workspace
	site   pullSite
	commit string
	done   bool
}

// Prepare makes the worktree. It is called by one goroutine at a time.
func (d *honestDesk) Prepare(ctx context.Context) error {
	if err := d.Workspace.Prepare(ctx); err != nil || d.done {
		return err
	}
	changed, err := d.site.mirror.Changed(ctx, d.site.from, d.commit)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(d.Dir())
	if err != nil {
		return fmt.Errorf("put the base's instructions in place: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing is buffered
	for _, c := range changed {
		if !isInstruction(c.Path) {
			continue
		}
		if err := d.restore(ctx, root, c.Path); err != nil {
			return fmt.Errorf("put the base's %s in place: %w", c.Path, err)
		}
	}
	d.done = true
	return nil
}

func (d *honestDesk) restore(ctx context.Context, root *os.Root, path string) error {
	text, err := d.site.mirror.File(ctx, d.site.base, path)
	gone := errors.Is(err, os.ErrNotExist)
	if err != nil && !gone {
		return err
	}
	name := filepath.FromSlash(path)
	if err := root.RemoveAll(name); err != nil || gone {
		return err
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return root.WriteFile(name, text, 0o644)
}

// isInstruction reports whether a file tells Slipway or agents what to do.
func isInstruction(path string) bool {
	if path == ConfigFile || path == ".github/copilot-instructions.md" {
		return true
	}
	for _, dir := range []string{review.LensDir, ".claude", ".codex", ".cursor", ".opencode", ".gemini"} {
		if strings.HasPrefix(path, dir+"/") || strings.Contains(path, "/"+dir+"/") {
			return true
		}
	}
	return slices.Contains([]string{guideFile, "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", ".cursorrules", ".mcp.json", "opencode.json"}, filepath.Base(path))
}
