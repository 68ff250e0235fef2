package repo

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// A Person is an author.
type Person struct{ Name, Email string }

// bot is the committer of every commit that Slipway makes.
var bot = Person{Name: "Slipway", Email: "slipway@localhost"}

// A Commit is what a new commit says of itself. Equal values, trees and parents
// give the equal commit.
type Commit struct {
	Message   string
	Author    Person // zero means Slipway
	CoAuthors []Person
	Time      time.Time // zero means now; whole seconds
}

// A Violation is a rule that somebody's files break.
type Violation struct {
	Path string // slash-separated, "" when the rule is about the whole
	Rule string
}

func (v *Violation) Error() string {
	if v.Path == "" {
		return v.Rule
	}
	return fmt.Sprintf("%q: %s", v.Path, v.Rule)
}

// Collect takes the files of dir as a commit on top of base and moves ref to
// it, wherever ref was. Files that are as in base make no commit: the result is
// base, and ref stays.
func (m *Mirror) Collect(ctx context.Context, dir, base, ref string, c Commit) (sha string, changed bool, err error) {
	if err := checkHash(base); err != nil {
		return "", false, fmt.Errorf("collect %s: %w", dir, err)
	}
	tree, err := m.Snapshot(ctx, dir, base)
	if err != nil {
		return "", false, err
	}
	was, err := m.Tree(ctx, base)
	if err != nil || was == tree {
		return base, false, err
	}
	if sha, err = m.CommitTree(ctx, tree, []string{base}, c); err != nil {
		return "", false, err
	}
	return sha, true, m.SetRef(ctx, ref, sha, Any)
}

// Snapshot writes the files of dir into the mirror and returns their tree.
// What .gitignore names is left out unless base has it. The directory is read
// as plain files: a repository inside it, or a .git at its top that is not the
// one its Worktree was given, is a *Violation, and no git directory but the
// mirror is ever opened. Nothing may write in dir meanwhile.
func (m *Mirror) Snapshot(ctx context.Context, dir, base string) (tree string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("collect %s: %w", filepath.Base(dir), err)
		}
	}()
	if err := checkRev(base); err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := refuseNested(ctx, dir); err != nil {
		return "", err
	}
	ix, err := m.newIndex()
	if err != nil {
		return "", err
	}
	defer ix.discard()
	// Every file is read anew. To trust the times of an earlier reading would
	// save 0.2 s on 10,000 files and miss an edit that puts its time back.
	steps := [][]string{{"read-tree", base}, {"add", "--all"}}
	known := m.takeIndex(dir, base, ix)
	if known {
		steps = steps[1:]
	}
	for _, args := range steps {
		if _, err := run(ctx, call{gitDir: m.dir, tree: dir, index: ix.path, args: args}); err != nil {
			return "", err
		}
	}
	tree, blank, err := m.writeTree(ix.path)
	if err == nil && known {
		m.keepBlank(dir, tree, blank, ix)
	}
	if !errors.Is(err, errOtherIndex) {
		return tree, err
	}
	return line(ctx, call{gitDir: m.dir, index: ix.path, config: eachSynced, args: []string{"write-tree"}})
}

// eachSynced is for a git that makes few objects: a batch of them goes by a
// directory of its own, which costs more than it saves.
var eachSynced = [][2]string{{"core.fsyncMethod", "fsync"}}

// CommitTree makes a commit of tree. Two parents make a merge.
func (m *Mirror) CommitTree(ctx context.Context, tree string, parents []string, c Commit) (string, error) {
	if err := checkHash(tree); err != nil {
		return "", fmt.Errorf("commit: tree: %w", err)
	}
	if !m.isKind(ctx, tree, treeKind) {
		return "", fmt.Errorf("commit: the mirror has no tree %s", short(tree))
	}
	text := fmt.Appendf(nil, "tree %s\n", tree)
	for _, p := range parents {
		if err := checkHash(p); err != nil {
			return "", fmt.Errorf("commit: parent: %w", err)
		}
		if !m.isKind(ctx, p, commitKind) {
			return "", fmt.Errorf("commit: the mirror has no commit %s", short(p))
		}
		text = fmt.Appendf(text, "parent %s\n", p)
	}
	author, at := c.Author, c.Time
	if author == (Person{}) {
		author = bot
	}
	if at.IsZero() {
		at = time.Now()
	}
	author = author.clean()
	text = fmt.Appendf(text, "author %s <%s> %d +0000\n", author.Name, author.Email, at.Unix())
	text = fmt.Appendf(text, "committer %s <%s> %d +0000\n\n%s", bot.Name, bot.Email, at.Unix(), c.text())
	sha, err := writeLoose(m.dir, commitKind, text)
	if err != nil {
		return "", fmt.Errorf("commit: %w", err)
	}
	return sha, nil
}

// text is the whole commit message.
func (c Commit) text() string {
	msg := strings.ToValidUTF8(c.Message, "\uFFFD")
	msg = strings.ReplaceAll(strings.ReplaceAll(msg, "\x00", ""), "\r\n", "\n")
	var b strings.Builder
	b.WriteString(strings.TrimSpace(msg))
	b.WriteByte('\n')
	for i, p := range c.CoAuthors {
		if i == 0 {
			b.WriteByte('\n')
		}
		p = p.clean()
		fmt.Fprintf(&b, "Co-authored-by: %s <%s>\n", p.Name, p.Email)
	}
	return b.String()
}

// clean drops what git cannot have in a name, and never leaves one empty.
func (p Person) clean() Person {
	drop := func(r rune) rune {
		if r < 32 || r == 127 || r == '<' || r == '>' {
			return -1
		}
		return r
	}
	p.Name = strings.TrimSpace(strings.Map(drop, strings.ToValidUTF8(p.Name, "")))
	p.Email = strings.TrimSpace(strings.Map(drop, strings.ToValidUTF8(p.Email, "")))
	if strings.Trim(p.Name, ` .,:;"\'`) == "" { // git strips these and then refuses an empty name
		p.Name = "unknown"
	}
	return p
}
