package repo

import "sync"

// A memo remembers what objects say, by hash: it cannot change. It is emptied
// when it is full.
type memo[V any] struct {
	mu   sync.Mutex
	of   map[string]V
	room int // what may still be added
}

// maxMemo bounds what a memo holds, by weight.
const maxMemo = 20_000

// get returns what is remembered of the hash, or reads it.
func (m *memo[V]) get(hash string, read func() (V, error), weight func(V) int) (V, error) {
	m.mu.Lock()
	v, known := m.of[hash]
	m.mu.Unlock()
	if known {
		return v, nil
	}
	v, err := read()
	if err != nil {
		return v, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.room -= weight(v); m.room < 0 {
		m.of, m.room = map[string]V{}, maxMemo-weight(v)
	}
	m.of[hash] = v
	return v, nil
}

// knows tells whether the hash is remembered.
func (m *memo[V]) knows(hash string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.of[hash]
	return known
}

// commitParts are what a commit is made of.
type commitParts struct {
	tree    string
	parents []string
}

// parts are those of a loose commit.
func (m *Mirror) parts(commit string) (commitParts, error) {
	return m.commits.get(commit, func() (commitParts, error) { return readCommit(m.dir, commit) }, func(commitParts) int { return 1 })
}

// entries are those of a loose tree, in its order; "" is the tree without files.
// They are not to be changed.
func (m *Mirror) entries(tree string) ([]treeEntry, error) {
	if tree == "" || tree == emptyTree {
		return nil, nil
	}
	return m.trees.get(tree, func() ([]treeEntry, error) { return readTree(m.dir, tree) }, weigh)
}

// weigh says how much of a memo a tree takes.
func weigh(all []treeEntry) int { return 1 + len(all) }

// size is the size of a loose object.
func (m *Mirror) size(object string) (int64, error) {
	return m.lengths.get(object, func() (int64, error) {
		l, err := openLoose(m.dir, object)
		if err != nil {
			return 0, err
		}
		l.close()
		return l.size, nil
	}, func(int64) int { return 1 })
}
