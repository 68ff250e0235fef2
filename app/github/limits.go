package github

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// Later says that GitHub, or our own pace, wants the caller to come back at a
// certain time. Nothing was done. It comes as the cause of a queue.Turn, so a
// task that returns it is parked until then.
type Later struct {
	At    time.Time
	Cause string
}

// Error says until when and why.
func (l *Later) Error() string {
	return fmt.Sprintf("wait until %s: %s", l.At.UTC().Format(time.RFC3339), l.Cause)
}

// Is makes it a forge.ErrLater too.
func (l *Later) Is(target error) bool { return target == forge.ErrLater }

func (l *Later) park() error { return queue.Turn(l.At, l) }

func asLater(err error) (*Later, bool) { return errors.AsType[*Later](err) }

// minimumWait is what GitHub asks of those whom it gives no time.
const minimumWait = time.Minute

// limited recognises a refusal for reasons of rate, for which GitHub uses 403
// and 429 alike, and says when to come back: Retry-After, else the reset of an
// exhausted quota, else a minute. A 403 without any sign of a rate is about
// permissions and stays what it is. The body can still be read afterwards.
//
// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
func limited(resp *http.Response, now time.Time) (*Later, error) {
	if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
		return nil, nil
	}
	if after := resp.Header.Get("Retry-After"); after != "" {
		return &Later{At: retryAfter(after, now), Cause: "GitHub's secondary rate limit"}, nil
	}
	if resp.Header.Get("X-RateLimit-Remaining") == "0" {
		at, known := resetOf(resp, now)
		if !known {
			at = now.Add(minimumWait)
		}
		return &Later{At: at, Cause: "GitHub's hourly rate limit"}, nil
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		return &Later{At: now.Add(minimumWait), Cause: "GitHub's rate limit"}, nil
	}
	secondary, err := saysSecondary(resp)
	if err != nil || !secondary {
		return nil, err
	}
	return &Later{At: now.Add(minimumWait), Cause: "GitHub's secondary rate limit"}, nil
}

// spent says until when to wait after an answer that used the last of the quota;
// nil where some is left.
func spent(resp *http.Response, now time.Time) *Later {
	if at, known := resetOf(resp, now); known && resp.Header.Get("X-RateLimit-Remaining") == "0" {
		return &Later{At: at, Cause: "GitHub's hourly rate limit"}
	}
	return nil
}

// resetOf is when an exhausted quota is full again, if the answer says so and it
// is not past: by GitHub's clock, because ours may be ahead of it.
func resetOf(resp *http.Response, now time.Time) (at time.Time, known bool) {
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		theirs = now
	}
	reset, err := strconv.ParseInt(resp.Header.Get("X-RateLimit-Reset"), 10, 64)
	if err != nil || reset <= theirs.Unix() {
		return now, false
	}
	return now.Add(time.Unix(reset, 0).Sub(theirs)), true
}

// retryAfter reads seconds or a date.
func retryAfter(value string, now time.Time) time.Time {
	if n, err := strconv.Atoi(value); err == nil && n >= 0 {
		return now.Add(time.Duration(n) * time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return at
	}
	return now.Add(minimumWait)
}

func saysSecondary(resp *http.Response) (bool, error) {
	const enough = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, enough))
	if err != nil {
		return false, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	var said struct {
		Message string `json:"message"`
		Docs    string `json:"documentation_url"`
	}
	if json.Unmarshal(body, &said) != nil {
		return false, nil
	}
	return strings.Contains(strings.ToLower(said.Message), "secondary rate limit") ||
		strings.Contains(said.Docs, "secondary-rate-limits"), nil
}

func closeResponse(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // lets the connection be used again
	_ = resp.Body.Close()
}
