package forge

import (
	"fmt"
	"strconv"
	"strings"
)

// PullMarker begins the hidden text in the body of a pull request by which the
// App finds the ticket of the pull request, and the other way round. What
// follows it is the App's own, up to the end of the comment.
func PullMarker(app int64, ticket int) string {
	return pullMarkerOf(app) + strconv.Itoa(ticket) + " "
}

func pullMarkerOf(app int64) string { return fmt.Sprintf("<!-- slipway app=%d ticket=", app) }

// MarkedTicket is the ticket that the body of a pull request belongs to. It is
// not ok when the body has no marker of the App. Anybody can write one: whether
// the App wrote this body is the caller's to know.
func MarkedTicket(body string, app int64) (ticket int, ok bool) {
	at := strings.LastIndex(body, pullMarkerOf(app)) // the marker is at the end
	if at < 0 {
		return 0, false
	}
	digits, _, ended := strings.Cut(body[at+len(pullMarkerOf(app)):], " ")
	ticket, err := strconv.Atoi(digits)
	return ticket, ended && err == nil && ticket > 0
}
