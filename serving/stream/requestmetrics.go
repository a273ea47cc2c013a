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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// WithRequestMetrics counts requests for the APIs by verb and code when the response starts,
// and rejected watches as errors. It must wrap authentication and authorization, to count
// rejected clients. Other APIs are not counted, since clients can make up their names.
func WithRequestMetrics(next http.Handler, resolver request.RequestInfoResolver, apis []API) http.Handler {
	known := sets.New(apis...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/apis/") {
			next.ServeHTTP(w, r)
			return
		}
		info, err := resolver.NewRequestInfo(r)
		if err != nil || !info.IsResourceRequest || !countedVerbs[info.Verb] {
			next.ServeHTTP(w, r)
			return
		}
		api := API{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
		if !known.Has(api) {
			// Resources that clients choose are not counted by name.
			api.Resource = ""
		}
		if !known.Has(api) {
			next.ServeHTTP(w, r)
			return
		}
		ServeObserved(w, r, next, func(code int) {
			requestsTotal.WithLabelValues(api.Group, api.Version, api.Resource, info.Verb, strconv.Itoa(code)).Inc()
			if info.Verb == "watch" && code >= http.StatusBadRequest {
				errorsTotal.WithLabelValues(api.Group, api.Version, api.Resource, statusReason(code)).Inc()
			}
		})
	})
}

// countedVerbs are the verbs of clients that watch and of clients that poll.
var countedVerbs = map[string]bool{"get": true, "list": true, "watch": true}

// ServeObserved serves a request, and calls started once with the code of the response when that starts; not for a client
// that is gone before.
func ServeObserved(w http.ResponseWriter, r *http.Request, next http.Handler, started func(code int)) {
	observed := &observedWriter{ResponseWriter: w, started: started}
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(observed), r)
	if r.Context().Err() == nil {
		// If the handler wrote nothing, net/http sends a 200.
		observed.start(http.StatusOK)
	}
}

// observedWriter calls started when the response starts.
type observedWriter struct {
	http.ResponseWriter
	started func(code int)
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *observedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader starts the response, unless it is provisional.
func (w *observedWriter) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.start(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write starts the response if WriteHeader was not called.
func (w *observedWriter) Write(p []byte) (int, error) {
	w.start(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// Hijack starts the response of a WebSocket, which is not written through this writer.
func (w *observedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.start(http.StatusSwitchingProtocols)
	}
	return conn, buffers, err
}

func (w *observedWriter) start(code int) {
	if w.started != nil {
		w.started(code)
		w.started = nil
	}
}

// statusReasons are the API machinery's reasons of HTTP codes.
var statusReasons = map[int]metav1.StatusReason{
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

func statusReason(code int) string {
	if reason, ok := statusReasons[code]; ok {
		return string(reason)
	}
	if code >= http.StatusInternalServerError {
		return string(metav1.StatusReasonInternalError)
	}
	return "Other"
}
