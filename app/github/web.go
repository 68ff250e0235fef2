package github

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"regexp"
)

// transport reaches GitHub over connections that the certificates of the system
// vouch for, or those of a file in PEM.
func transport(caFile string) (http.RoundTripper, error) {
	if caFile == "" {
		return http.DefaultTransport, nil
	}
	text, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("read github.ca_file: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's certificates: %w", err)
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read github.ca_file: %s has no certificate in PEM", caFile)
	}
	web := http.DefaultTransport.(*http.Transport).Clone()
	web.TLSClientConfig = &tls.Config{RootCAs: roots}
	return web, nil
}

// bearer sends requests with a token. Below a cache it has every answer validated
// before it is used again: a permission that was withdrawn a second ago must not
// be answered from memory.
type bearer struct {
	next  http.RoundTripper
	token string
}

var maxAge = regexp.MustCompile(`max-age=\d+`)

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if rules := resp.Header.Get("Cache-Control"); rules != "" {
		resp.Header.Set("Cache-Control", maxAge.ReplaceAllString(rules, "max-age=0"))
	}
	return resp, nil
}
