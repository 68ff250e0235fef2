package runtime

import (
	"net/http"
	"strings"
)

// classify says what an error of a model's API means: by its status, and where
// that is ambiguous or missing by its words.
func classify(status int, words string) Class {
	words = strings.ToLower(words)
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(words, part) {
				return true
			}
		}
		return false
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired, status == http.StatusNotFound:
		return Fatal
	case has("credit balance", "billing", "insufficient_quota", "invalid api key", "not logged in", "/login", "oauth token"):
		return Fatal
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusConflict, status >= 500:
		return Transient
	case status == 0 && has("overloaded", "rate limit", "connection", "timed out", "timeout", "econn", "enotfound", "socket", "fetch failed", "network"):
		return Transient
	}
	return Refused
}
