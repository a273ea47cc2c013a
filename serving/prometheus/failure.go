// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// errorResponse is an error of Prometheus.
type errorResponse struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	// Message is that of some gateways.
	Message string `json:"message"`
}

// classifyStatus returns the Failure for a response with another status than 200.
func classifyStatus(resp *http.Response, n *sourceclient.Connection, now time.Time) *query.Failure {
	code := resp.StatusCode
	if code >= 300 && code < 400 {
		return query.Failf(query.ReasonBadStatus, "HTTP %d: redirects are not followed, as they would show credentials to someone else; set the source's url to what it names: %s", code, sourceclient.Location(resp))
	}
	body := n.Excerpt(resp.Body)
	var parsed errorResponse
	text := ""
	if json.Unmarshal([]byte(body), &parsed) == nil {
		text = cmp.Or(parsed.Error, parsed.Message)
	}
	text = cmp.Or(text, sourceclient.Readable(resp.Header, body))
	message := fmt.Sprintf("HTTP %d", code)
	if text != "" {
		message += ": " + text
	}
	wait := sourceclient.RetryAfter(code, resp.Header, now)
	switch {
	case code == http.StatusTooManyRequests:
		message += " (the server limits its clients: raise the limit there, or ask less: longer intervals, or fewer metrics)"
		return &query.Failure{Reason: query.ReasonRateLimited, Message: message, RetryAfter: wait}
	case wait > 0:
		message += " (the server is overloaded: give it more capacity, or ask less)"
		return &query.Failure{Reason: query.ReasonRateLimited, Message: message, RetryAfter: wait}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return query.Failf(query.ReasonUnauthorized, "%s (check authentication and headers of the source)", message)
	case parsed.Status == "error" && parsed.ErrorType == "timeout":
		return query.Failf(query.ReasonTimeout, "%s", text)
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity:
		if parsed.Error != "" {
			// Prometheus' own message needs no status.
			message = withoutQuery(parsed.Error)
		}
		return rejected(parsed.ErrorType, message)
	case code == http.StatusNotFound:
		return query.Failf(query.ReasonBadStatus, "%s (check that the source's url ends before /api/v1)", message)
	case code == http.StatusRequestURITooLong:
		return query.Failf(query.ReasonBadStatus, "%s (the server takes no POST, and the query is too long for a URL)", message)
	}
	return query.Failf(query.ReasonBadStatus, "%s", message)
}

// classifyAPIError returns the Failure for an error in a response with status 200.
func classifyAPIError(errorType, message string) *query.Failure {
	switch errorType {
	case "timeout":
		return query.Failf(query.ReasonTimeout, "%s", message)
	case errorBadData, "execution":
		return rejected(errorType, message)
	}
	return query.Failf(query.ReasonBadStatus, "%s: %s", errorType, message)
}

// errorBadData is Prometheus' type of errors in parameters, such as a query that it cannot parse.
const errorBadData = "bad_data"

func rejected(errorType, message string) *query.Failure {
	f := query.Failf(query.ReasonRejected, "%s", message)
	// VictoriaMetrics has only one type of errors, and this error for a label that it cannot parse.
	f.Unparsable = errorType == errorBadData || strings.HasPrefix(message, "labelFilterExpr: unexpected token")
	return f
}

// repeatedQuery is how messages of VictoriaMetrics begin.
var repeatedQuery = regexp.MustCompile(`^error when executing query="(?:[^"\\]|\\.)*" for \(time=\d+, step=\d+\): `)

// withoutQuery removes the query, and the time, that VictoriaMetrics repeats before its error. A long
// query would leave no room for the error, and the time would make it another one each time.
func withoutQuery(message string) string { return repeatedQuery.ReplaceAllString(message, "") }

// classifyNotJSON returns the Failure for a response that is not JSON.
func classifyNotJSON(resp *http.Response, n *sourceclient.Connection) *query.Failure {
	return query.Failf(query.ReasonMalformed, "the answer is %s, not JSON; check that the source's url ends before /api/v1, and that no login page stands before the server: %s",
		resp.Header.Get("Content-Type"), sourceclient.Readable(resp.Header, n.Excerpt(resp.Body)))
}
