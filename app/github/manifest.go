package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/go-github/v60/github"
)

// A NewApp is an App that GitHub made from a manifest.
type NewApp struct {
	ID            int64
	Slug          string
	PrivateKey    string // PEM
	WebhookSecret string
	Page          string // the App's, on GitHub
}

// ConvertManifest exchanges the code with which GitHub sends a browser back for
// the App that it made. A code is good once, and for an hour.
func ConvertManifest(ctx context.Context, baseURL, caFile, code string) (NewApp, error) {
	base, err := url.Parse(baseURL)
	if err != nil {
		return NewApp{}, fmt.Errorf("exchange the manifest's code: %w", err)
	}
	web, err := transport(caFile)
	if err != nil {
		return NewApp{}, err
	}
	client := github.NewClient(&http.Client{Timeout: callTimeout, Transport: web})
	client.BaseURL = base
	made, _, err := client.Apps.CompleteAppManifest(ctx, url.PathEscape(code))
	if err != nil {
		return NewApp{}, errors.New("exchange the manifest's code: " + withoutCode(err)) // the code is a secret
	}
	if made.GetID() == 0 || made.GetPEM() == "" || made.GetWebhookSecret() == "" {
		return NewApp{}, errors.New("exchange the manifest's code: GitHub gave no id, key or webhook secret")
	}
	return NewApp{
		ID: made.GetID(), Slug: made.GetSlug(), PrivateKey: made.GetPEM(),
		WebhookSecret: made.GetWebhookSecret(), Page: made.GetHTMLURL(),
	}, nil
}

func withoutCode(err error) string {
	if e, ok := errors.AsType[*github.ErrorResponse](err); ok && e.Response != nil {
		return e.Response.Status + ": " + e.Message
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
