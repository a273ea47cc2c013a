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

// serve answers as the kubelet that the connection belongs to, or as its fault says.
func (f *Fleet) serve(w http.ResponseWriter, r *http.Request) {
	connection := connection(r)
	n := connection.node
	c := &f.server.counters
	c.requests.Add(1)
	c.inFlight.Add(1)
	defer c.inFlight.Add(-1)

	fault := n.fault.Load()
	switch fault.Kind {
	case Reset:
		connection.reset()
		return
	case Hanging:
		f.wait(r, fault, 0)
	case Slow:
		f.wait(r, fault, fault.Duration.Duration)
	}
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has left, or the fleet stops: not an empty 200
	}
	if status, message := f.refusal(r, fault.Kind); status != 0 {
		c.refused.Add(1)
		http.Error(w, message, status)
		return
	}

	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	now := f.clock.Now()
	s.render(n, fault, now)
	if f.options.Answering != nil {
		f.options.Answering(n, now)
	}
	w.Header().Set("Content-Type", contentType)
	written, whole := f.send(w, r, fault, s.body)
	c.bytes.Add(written)
	if !whole {
		panic(http.ErrAbortHandler) // how net/http is told to break the answer off
	}
	c.answered.Add(1)
}

// refusal is the status and text of an answer that is not a body; 0 for none.
func (f *Fleet) refusal(r *http.Request, kind Kind) (int, string) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case kind == Unauthorized, !bearer, token == "", f.options.Token != "" && token != f.options.Token:
		return http.StatusUnauthorized, "Unauthorized"
	case kind == Forbidden:
		return http.StatusForbidden, "Forbidden (user=fleet, verb=get, resource=nodes, subresource(s)=[metrics])"
	case kind == InternalError:
		return http.StatusInternalServerError, "the kubelet cannot collect its metrics"
	case r.URL.Path != f.options.MetricsPath:
		return http.StatusNotFound, "404 page not found"
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, "405: Method Not Allowed"
	}
	return 0, ""
}

// wait for the duration (0: for ever), but no longer than the client waits, the
// fault lasts or the fleet runs.
func (f *Fleet) wait(r *http.Request, fault *activeFault, duration time.Duration) {
	var timeout <-chan time.Time
	if duration > 0 {
		timer := f.clock.NewTimer(duration)
		defer timer.Stop()
		timeout = timer.C()
	}
	select {
	case <-timeout:
	case <-fault.over:
	case <-r.Context().Done():
	}
}

// render fills in the body under that fault.
func (s *scratch) render(n *Node, fault *activeFault, now time.Time) {
	state := n.state.Load()
	if fault.frozen != nil {
		state, now = fault.frozen, fault.frozenAt
	}
	s.samples.take(n, state, now)
	fault.distort(&s.samples)
	s.body = s.samples.appendTo(s.body[:0], n.swap != SwapAbsent)
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

// send writes the body, and tells how much of it and whether it is to end well.
func (f *Fleet) send(w http.ResponseWriter, r *http.Request, fault *activeFault, body []byte) (int64, bool) {
	switch fault.Kind {
	case Huge:
		return f.sendHuge(w, fault, body)
	case Dribble:
		return f.sendDribble(w, r, fault, body)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if fault.Kind == Aborted {
		body = body[:len(body)/2]
	}
	written, err := w.Write(body)
	if fault.Kind == Aborted {
		_ = http.NewResponseController(w).Flush()
		return int64(written), false
	}
	return int64(written), err == nil
}

func (f *Fleet) sendDribble(w http.ResponseWriter, r *http.Request, fault *activeFault, body []byte) (int64, bool) {
	const pieces = 16
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	flusher := http.NewResponseController(w)
	var total int64
	for i := range pieces {
		_ = flusher.Flush() // the headers first
		f.wait(r, fault, fault.Duration.Duration/pieces)
		written, err := w.Write(body[len(body)*i/pieces : len(body)*(i+1)/pieces])
		total += int64(written)
		if err != nil {
			return total, false
		}
	}
	return total, true
}

// sendHuge goes on after the true body until at least Bytes are sent, the client
// leaves or the fault is over. Every line is valid: only a bound on the size helps.
func (f *Fleet) sendHuge(w http.ResponseWriter, fault *activeFault, body []byte) (int64, bool) {
	const line = `container_memory_working_set_bytes{container="huge",namespace="huge",pod="huge"} 1.048576e+06` + "\n"
	filler := []byte(strings.Repeat(line, 64<<10/len(line)))
	written, err := w.Write(body)
	total := int64(written)
	for err == nil && total < fault.Bytes {
		select {
		case <-fault.over:
			return total, true
		default:
		}
		written, err = w.Write(filler)
		total += int64(written)
	}
	return total, err == nil
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
