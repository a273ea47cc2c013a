// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// WithRequestMetrics counts requests for the APIs by verb and code when their
// answer begins, and watches that were refused as errors. Its place is outside of
// authentication and authorization: clients that are refused count, too. Paths of
// other APIs are not counted, since anybody may make them up.
func WithRequestMetrics(next http.Handler, resolver request.RequestInfoResolver, apis []API) http.Handler {
	known := map[API]struct{}{}
	for _, api := range apis {
		known[api] = struct{}{}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/apis/") {
			next.ServeHTTP(w, r)
			return
		}
		info, err := resolver.NewRequestInfo(r)
		if err != nil || !info.IsResourceRequest || !counted[info.Verb] {
			next.ServeHTTP(w, r)
			return
		}
		api := API{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
		if _, ok := known[api]; !ok {
			// Where clients name the resources, these are none of what is counted by.
			api.Resource = ""
		}
		if _, ok := known[api]; !ok {
			next.ServeHTTP(w, r)
			return
		}
		answer := &answer{ResponseWriter: w, api: api, verb: info.Verb}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(answer), r)
		if r.Context().Err() == nil {
			// A handler that returns without an answer has net/http send a 200.
			answer.begin(http.StatusOK)
		}
	})
}

// counted are the verbs of a client that watches and of one that polls.
var counted = map[string]bool{"get": true, "list": true, "watch": true}

// answer counts a request when its answer begins.
type answer struct {
	http.ResponseWriter
	api   API
	verb  string
	begun bool
}

// Unwrap returns what is underneath.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader begins the answer, unless the code is of a provisional one.
func (a *answer) WriteHeader(code int) {
	if code >= http.StatusOK {
		a.begin(code)
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write begins the answer where WriteHeader was not called.
func (a *answer) Write(p []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.ResponseWriter.Write(p)
}

// Hijack begins the answer that a WebSocket is, which is written without us.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
	}
	return conn, buffers, err
}

func (a *answer) begin(code int) {
	if a.begun {
		return
	}
	a.begun = true
	requestsTotal.WithLabelValues(a.api.Group, a.api.Version, a.api.Resource, a.verb, strconv.Itoa(code)).Inc()
	if a.verb == "watch" && code >= http.StatusBadRequest {
		errorsTotal.WithLabelValues(a.api.Group, a.api.Version, a.api.Resource, refusal(code)).Inc()
	}
}

// refusals are the types of errors that codes stand for: the reason that the API machinery
// gives with each.
var refusals = map[int]metav1.StatusReason{
	http.StatusBadRequest:          metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusMethodNotAllowed:    metav1.StatusReasonMethodNotAllowed,
	http.StatusNotAcceptable:       metav1.StatusReasonNotAcceptable,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}

func refusal(code int) string {
	if reason, ok := refusals[code]; ok {
		return string(reason)
	}
	if code >= http.StatusInternalServerError {
		return string(metav1.StatusReasonInternalError)
	}
	return "Other"
}
