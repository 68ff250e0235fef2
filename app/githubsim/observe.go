package githubsim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

// An Exchange is one request and its answer, or one webhook that was sent.
type Exchange struct {
	Method         string
	URL            string // absolute
	Route          string // the pattern of GitHub's description; empty for git, pages and webhooks
	RequestHeader  http.Header
	Request        []byte
	Status         int // 0 when the connection was dropped
	ResponseHeader http.Header
	Response       []byte
	Event          string // name of the webhook event; then Request is its payload
	GUID           string // of the webhook
}

// Mutates tells whether the exchange asked for a change and got it. Documents of
// GraphQL are all posted; those that only ask say so.
func (e Exchange) Mutates() bool {
	if e.Route == graphRoute.pattern && bytes.Contains(e.Request, []byte(`"query":"query`)) {
		return false
	}
	return e.Event == "" && e.Method != http.MethodGet && e.Method != http.MethodHead && e.Status/100 == 2
}

// Observe has fn called with every exchange of the REST interface and every
// emitted webhook, from now on and from several goroutines.
func (s *Server) Observe(fn func(Exchange)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(s.observers, fn)
}

// observed hands e to the observers. The caller must not hold mu.
func (s *Server) observed(e Exchange) {
	s.mu.Lock()
	fns := s.observers
	s.mu.Unlock()
	for _, fn := range fns {
		fn(e)
	}
}

// A LogLine is one request as /_sim/log lists it.
type LogLine struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	Path   string    `json:"path"` // with its query, without /api/v3
	Route  string    `json:"route,omitempty"`
	Status int       `json:"status"` // 0 when the connection was dropped
}

// journal is the log of requests: a file of JSON lines.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of requests: %w", err)
	}
	return &journal{file: f}, nil
}

func (j *journal) add(line LogLine) error {
	raw, err := json.Marshal(line)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err = j.file.Write(append(raw, '\n'))
	return err
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.Close()
}

// Requests lists every request since the directory was created, oldest first.
func (s *Server) Requests() ([]LogLine, error) {
	f, err := os.Open(s.journal.file.Name())
	if err != nil {
		return nil, fmt.Errorf("read the log of requests: %w", err)
	}
	var lines []LogLine
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var line LogLine
		if json.Unmarshal(scan.Bytes(), &line) == nil { // a torn last line is no line
			lines = append(lines, line)
		}
	}
	return lines, errors.Join(scan.Err(), f.Close())
}

// Unknown lists the requests that no route served, as "METHOD path".
func (s *Server) Unknown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.state.Unknown...)
}
