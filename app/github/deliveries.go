package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-github/v60/github"
)

// A Delivery is one attempt of GitHub to send the App a webhook. All attempts to
// send the same one share its GUID.
type Delivery struct {
	ID       int64
	GUID     string
	Event    string
	At       time.Time
	Accepted bool // somebody answered 2xx at the webhook's address
}

// deliveryPages bounds how far back Deliveries reads, in pages of a hundred.
const deliveryPages = 200

// Deliveries lists the attempts since a time, newest first. GitHub knows those
// of the last three days. What a busy App has beyond 20,000 attempts is not in it.
func (a *App) Deliveries(ctx context.Context, since time.Time) ([]Delivery, error) {
	var out []Delivery
	page := &github.ListCursorOptions{PerPage: 100}
	for range deliveryPages {
		attempts, cursor, err := a.deliveryPage(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list the deliveries of webhooks: %w", err)
		}
		for _, d := range attempts {
			if d.GetDeliveredAt().Before(since) {
				return out, nil
			}
			out = append(out, Delivery{
				ID: d.GetID(), GUID: d.GetGUID(), Event: d.GetEvent(), At: d.GetDeliveredAt().Time,
				Accepted: d.GetStatusCode() >= http.StatusOK && d.GetStatusCode() < http.StatusMultipleChoices,
			})
		}
		if page.Cursor = cursor; cursor == "" {
			break
		}
	}
	return out, nil
}

func (a *App) deliveryPage(ctx context.Context, page *github.ListCursorOptions) ([]*github.HookDelivery, string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	attempts, resp, err := a.self.Apps.ListHookDeliveries(ctx, page)
	if err != nil {
		return nil, "", err
	}
	return attempts, resp.Cursor, nil
}

// Redeliver asks GitHub to send the webhook of an attempt again. That of one that
// GitHub has forgotten since is no error: nobody can get it any more.
func (a *App) Redeliver(ctx context.Context, id int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, _, err := a.self.Apps.RedeliverHookDelivery(ctx, id)
	if _, accepted := errors.AsType[*github.AcceptedError](err); accepted || status(err) == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for delivery %d again: %w", id, err)
	}
	return nil
}
