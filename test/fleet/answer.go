// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// serve answers as the kubelet that the connection belongs to.
func (f *Fleet) serve(w http.ResponseWriter, r *http.Request) {
	f.answer(f.nodeAt(connection(r)), w, r)
}

// answer responds as a node, or as its fault says.
func (f *Fleet) answer(n *Node, w http.ResponseWriter, r *http.Request) {
	fault := n.fault.Load()
	switch fault.Kind {
	case Reset:
		reset(connection(r))
		return
	case Hanging:
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // or net/http would respond with an empty body
	}
	if status, message := refusal(r, fault.Kind); status != 0 {
		http.Error(w, message, status)
		return
	}
	if !f.delay(r.Context(), n, fault) {
		panic(http.ErrAbortHandler)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	now := f.clock.Now()
	s.render(n, fault, now)
	if f.options.Answering != nil {
		f.options.Answering(n, now)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(s.body)))
	if fault.Kind == Aborted {
		_, _ = w.Write(s.body[:len(s.body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // how net/http is told to break the answer off
	}
	_, _ = w.Write(s.body)
}

// refusal is the status and text of an answer that is not a body; 0 for none.
func refusal(r *http.Request, kind Kind) (int, string) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !bearer, token == "":
		return http.StatusUnauthorized, "Unauthorized"
	case kind == Forbidden:
		return http.StatusForbidden, "Forbidden (user=fleet, verb=get, resource=nodes, subresource(s)=[metrics])"
	case kind == InternalError:
		return http.StatusInternalServerError, "the kubelet cannot collect its metrics"
	case r.URL.Path != metricsPath:
		return http.StatusNotFound, "404 page not found"
	}
	return 0, ""
}

// render fills in the body under that fault.
func (s *scratch) render(n *Node, fault *activeFault, now time.Time) {
	state := n.state.Load()
	if fault.frozen != nil {
		state, now = fault.frozen, fault.frozenAt
	}
	s.samples.take(n, state, now)
	fault.distort(&s.samples)
	s.body = s.samples.appendTo(s.body[:0])
	switch fault.Kind {
	case Garbage:
		s.body = appendNoise(s.body[:0], n.seed)
	case Truncated:
		s.body = s.body[:cut(s.body)]
	}
}

// cut is a place in the middle of a line of samples, near the middle of the body.
func cut(body []byte) int {
	for i := len(body) / 2; i < len(body); i++ {
		if body[i] == '{' {
			return i + 5
		}
	}
	return len(body) / 2
}

// appendNoise appends 64 KiB that are no exposition format, the same for a node
// each time: all byte values, with a newline now and then.
func appendNoise(body []byte, seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 0x6a4ba6e))
	for range 64 << 10 / 8 {
		word := random.Uint64()
		for range 8 {
			body = append(body, byte(word))
			word >>= 8
		}
	}
	return body
}
