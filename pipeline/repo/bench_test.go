package repo

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// benchFiles is a repository of n files of 4 KB.
func benchFiles(n int) files {
	f := files{}
	for i := range n {
		f[fmt.Sprintf("d%02d/f%04d.go", i%50, i)] = strings.Repeat(fmt.Sprintf("line %d of a file\n", i), 220)
	}
	return f
}

func BenchmarkCollect(b *testing.B) {
	for _, n := range []int{100, 2000} {
		b.Run(fmt.Sprint(n, " files"), func(b *testing.B) {
			m, base := newMirror(b, benchFiles(n))
			_, dir := newWorktree(b, m, base)
			i := 0
			for b.Loop() {
				i++
				files{"d00/f0000.go": fmt.Sprint("edit ", i)}.write(b, dir)
				if _, changed, err := m.Collect(b.Context(), dir, base, "refs/slipway/b/i", Commit{Message: "m", Time: when}); err != nil || !changed {
					b.Fatal(changed, err)
				}
			}
		})
	}
}

// BenchmarkLand is what a landing costs for each issue.
func BenchmarkLand(b *testing.B) {
	m, base := newMirror(b, benchFiles(2000))
	ours, theirs := commit(b, m, base, files{"d00/f0000.go": "ours"}), commit(b, m, base, files{"d01/f0001.go": "theirs"})
	for b.Loop() {
		merge := ok[Merge](b)(m.Merge(b.Context(), ours, theirs))
		_ = ok[string](b)(m.CommitTree(b.Context(), merge.Tree, []string{ours, theirs}, Commit{Message: "Land", Time: when}))
	}
}

func BenchmarkInspect(b *testing.B) {
	m, base := newMirror(b, benchFiles(2000))
	head := commit(b, m, base, files{"d00/f0000.go": "1", "d01/f0001.go": "2", "l": "-> d00"})
	for b.Loop() {
		must(b, m.Inspect(b.Context(), base, head, Limits{}))
	}
}

func BenchmarkCheckoutAnother(b *testing.B) {
	m, base := newMirror(b, benchFiles(2000))
	other := commit(b, m, base, files{"d00/f0000.go": "other"})
	dir := filepath.Join(b.TempDir(), "evidence")
	for b.Loop() {
		must(b, m.Checkout(b.Context(), base, dir))
		base, other = other, base
	}
}

// BenchmarkWorktree is the way of a worktree from its making over one collect to
// its removal, and what of it each of its files costs this process.
func BenchmarkWorktree(b *testing.B) {
	const n = 2000
	m, base := newMirror(b, benchFiles(n))
	c, _ := newWorktree(b, m, base)
	before, i := ownCPU(b), 0
	for b.Loop() {
		i++
		name := fmt.Sprint("w", i)
		dir := ok[string](b)(c.Worktree(b.Context(), name, base))
		files{"d00/f0000.go": fmt.Sprint("edit ", i)}.write(b, dir)
		_, _, err := m.Collect(b.Context(), dir, base, "refs/slipway/b/i", Commit{Message: "m", Time: when})
		must(b, err)
		must(b, c.Remove(b.Context(), name))
	}
	b.ReportMetric(float64((ownCPU(b)-before).Nanoseconds())/1000/n/float64(b.N), "own-us/file")
}

// ownCPU is what this process has used, its children apart.
func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
