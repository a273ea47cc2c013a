// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Paths of the API, below the source's URL.
const (
	pathQuery  = "/api/v1/query"
	pathSeries = "/api/v1/series"
)

// call asks the API and has read read the answer's data as it arrives, within what body
// bounds. It returns the warnings of the server.
//
// client_golang's client is not used: it holds three copies of an answer before the
// first sample can be counted, and cannot reduce series while it reads them.
func (n *connection) call(ctx context.Context, path string, form url.Values, body *boundedReader, read dataReader) ([]string, error) {
	resp, err := n.request(ctx, path, form.Encode())
	if err != nil {
		return nil, classify(ctx, err)
	}
	defer discard(resp)
	if resp.StatusCode != http.StatusOK {
		if wait := retryAfter(resp.StatusCode, resp.Header, n.clock.Now()); wait > 0 {
			n.heldOff.Store(n.clock.Now().Add(wait).UnixNano())
		}
		return nil, classifyStatus(resp, n.credentials)
	}
	if !maybeJSON(resp.Header) {
		return nil, notJSON(resp, n.credentials)
	}
	if resp.ContentLength > body.left && body.whole {
		return nil, failf(query.ReasonTooLarge, "the answer has %d bytes; %s", resp.ContentLength, n.settings.remedy())
	}
	// Of a compressed answer, those bytes count that come out.
	body.r = resp.Body
	warnings, err := readEnvelope(body, read)
	switch {
	case err == nil:
		return warnings, nil
	case body.exceeded:
		return nil, failf(query.ReasonTooLarge, "the answer is larger than it may be; %s", n.settings.remedy())
	case body.err != nil:
		return nil, classify(ctx, body.err)
	}
	return nil, err
}

// answer bounds the answer to a query.
func (s *settings) answer() *boundedReader { return &boundedReader{left: s.maxBytes, whole: true} }

// remedy says what to do about an answer that is too large.
func (s *settings) remedy() string {
	return fmt.Sprintf("maxResponseSize is %d bytes, which is at most %d samples: aggregate more in the query, or raise it", s.maxBytes, s.maxSamples)
}

// request asks with POST or, where that is refused, with GET: there are proxies that only
// let reads through, and what they refuse is the method.
func (n *connection) request(ctx context.Context, path, form string) (*http.Response, error) {
	resp, err := n.send(ctx, http.MethodPost, path, form)
	if err != nil || !refusesPOST(resp.StatusCode) {
		return resp, err
	}
	unclear := resp.StatusCode == http.StatusForbidden
	if unclear && n.clock.Now().UnixNano() < n.refused.Load() {
		return resp, nil
	}
	discard(resp)
	resp, err = n.send(ctx, http.MethodGet, path, form)
	if err == nil && unclear && resp.StatusCode == http.StatusForbidden {
		// It is these credentials that are refused: no query need be in the logs of
		// proxies as a URL.
		n.refused.Store(n.clock.Now().Add(refusedTime).UnixNano())
	}
	return resp, err
}

// refusedTime is how long a source that answers 403 to both methods is asked by POST only.
const refusedTime = time.Hour

func (n *connection) send(ctx context.Context, method, path, form string) (*http.Response, error) {
	target := n.settings.endpoint + path
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(form)
	} else {
		target += "?" + form
	}
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		// Asking twice does no harm: the transport may do it when a connection
		// that it kept turns out to be dead. Nothing is sent of this header.
		r.Header["Idempotency-Key"] = nil
	}
	return n.http.Do(r)
}

func refusesPOST(code int) bool {
	return code == http.StatusForbidden || code == http.StatusMethodNotAllowed || code == http.StatusNotImplemented
}

// discard ends an answer. A short rest of it is read, so that the connection stays usable.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, excerptSize)
	_ = resp.Body.Close()
}

// maybeJSON says whether a header does not exclude JSON.
func maybeJSON(h http.Header) bool {
	given := h.Get("Content-Type")
	if given == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(given)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// boundedReader reads up to a number of bytes, and keeps its errors: a decoder makes
// others of them.
type boundedReader struct {
	r    io.Reader
	left int64
	// stretch bounds the bytes between two marks; 0: nothing does.
	stretch, unmarked int64
	// whole says that a part of the answer is of no use.
	whole    bool
	exceeded bool
	err      error
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.exceeded {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.r.Read(p)
	b.unmarked += int64(n)
	if int64(n) > b.left || b.stretch > 0 && b.unmarked > b.stretch {
		b.exceeded = true
		return 0, io.ErrUnexpectedEOF
	}
	b.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// mark says that what was read so far is no longer in memory.
func (b *boundedReader) mark() { b.unmarked = 0 }

// timestamp is an instant as the API reads it, to the millisecond.
func timestamp(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}
