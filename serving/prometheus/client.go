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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// Paths of the API, below the source's URL.
const (
	pathQuery  = "/api/v1/query"
	pathSeries = "/api/v1/series"
)

// call requests a path of the API with a form and the spec's parameters, and decodes the response's data with read as it arrives, within
// the bounds of body. It returns the server's warnings. A partial response is a failure, unless the
// spec accepts it.
//
// client_golang's client is not used: it holds three copies of a response before the first
// sample can be counted, and cannot reduce series while it reads them.
func (n *connection) call(ctx context.Context, path string, form url.Values, body *boundedReader, read dataReader) ([]string, error) {
	began := n.clock.Now()
	// Of a parameter that is there twice servers use the first value: form's.
	resp, err := n.request(ctx, path, form.Encode()+n.Spec.Parameters)
	if err != nil {
		return nil, sourceclient.Classify(ctx, err)
	}
	defer drain(resp)
	if resp.StatusCode == http.StatusUnauthorized {
		n.Unauthorized(began)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, classifyStatus(resp, n.Connection, n.clock.Now())
	}
	if !maybeJSON(resp.Header) {
		return nil, classifyNotJSON(resp, n.Connection)
	}
	if resp.ContentLength > body.left && body.whole {
		return nil, query.Failf(query.ReasonTooLarge, "the answer has %d bytes; %s", resp.ContentLength, body.remedy)
	}
	// The bounds are on the decompressed bytes.
	body.r = resp.Body
	e, err := readEnvelope(body, read)
	switch {
	case err == nil:
		return e.warnings, n.settings.rejectPartial(e)
	case body.exceeded:
		return nil, query.Failf(query.ReasonTooLarge, "the answer is larger than it may be; %s", body.remedy)
	case body.err != nil:
		return nil, sourceclient.Classify(ctx, body.err)
	}
	return nil, err
}

// query evaluates a query as of an instant, and adds samples and warnings to the result.
func (n *connection) query(ctx context.Context, q query.Query, at time.Time, result *query.Result) error {
	bounds := n.settings.bounds(q.Declared)
	v := sampleReader{at: at, bounds: bounds}
	warnings, err := n.call(ctx, pathQuery, url.Values{
		"query": {q.Expression}, "time": {timestamp(at)}, "timeout": {serverTimeout(ctx)},
	}, &boundedReader{left: bounds.bytes, remedy: bounds.remedy, whole: true}, v.read)
	result.Samples, result.Warnings, result.Bytes = v.samples, n.Warnings(warnings), v.size
	for _, w := range result.Warnings {
		result.Bytes += len(w)
	}
	return err
}

// request uses POST or, if that is refused, GET: some proxies forbid POST.
func (n *connection) request(ctx context.Context, path, form string) (*http.Response, error) {
	resp, err := n.send(ctx, http.MethodPost, path, form)
	if err != nil || !refusesPOST(resp.StatusCode) {
		return resp, err
	}
	unclear := resp.StatusCode == http.StatusForbidden
	if unclear && n.clock.Now().UnixNano() < n.postOnlyUntil.Load() {
		return resp, nil
	}
	drain(resp)
	resp, err = n.send(ctx, http.MethodGet, path, form)
	if err == nil && unclear && resp.StatusCode == http.StatusForbidden {
		// The credentials are refused, not the method. Use POST only, which keeps queries out
		// of the access logs of proxies.
		n.postOnlyUntil.Store(n.clock.Now().Add(postOnlyTime).UnixNano())
	}
	return resp, err
}

// postOnlyTime is how long only POST is used after 403 for both methods.
const postOnlyTime = time.Hour

func (n *connection) send(ctx context.Context, method, path, form string) (*http.Response, error) {
	target := n.Spec.Endpoint + path
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
		// The transport may then retry if a kept connection is dead. The header is not sent.
		r.Header["Idempotency-Key"] = nil
	}
	return n.HTTP.Do(r)
}

func refusesPOST(code int) bool {
	return code == http.StatusForbidden || code == http.StatusMethodNotAllowed || code == http.StatusNotImplemented
}

// drain closes a response, after reading a short rest of it so that the connection is reused.
func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, sourceclient.ExcerptSize)
	_ = resp.Body.Close()
}

// maybeJSON reports whether the Content-Type is JSON or missing.
func maybeJSON(h http.Header) bool {
	given := h.Get("Content-Type")
	if given == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(given)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// boundedReader limits the bytes read, and keeps the error, which decoders replace.
type boundedReader struct {
	r    io.Reader
	left int64
	// maxItem limits the bytes of an item, if not 0, and item counts those of the current one.
	maxItem, item int64
	// whole is set if a part of the response is of no use; then remedy is what to do about a
	// longer one.
	whole    bool
	remedy   string
	exceeded bool
	err      error
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.exceeded {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.r.Read(p)
	b.item += int64(n)
	if int64(n) > b.left || b.maxItem > 0 && b.item > b.maxItem {
		b.exceeded = true
		return 0, io.ErrUnexpectedEOF
	}
	b.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

// nextItem starts the next item.
func (b *boundedReader) nextItem() { b.item = 0 }

// timestamp formats an instant for the API, to the millisecond.
func timestamp(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}

// rejectPartial returns the Failure for a result that lacks data, if the spec does not accept such
// results, and nil otherwise. A sum of them would be too low, and autoscalers would scale down.
func (s *settings) rejectPartial(e envelope) error {
	if s.partial == v1alpha1.PartialResponseAccept {
		return nil
	}
	missing := slices.DeleteFunc(slices.Sorted(slices.Values(e.warnings)), aboutQuery)
	what := "it says isPartial"
	switch {
	case len(missing) > 1:
		what = fmt.Sprintf("%s (and %d more warnings)", missing[0], len(missing)-1)
	case len(missing) == 1:
		what = missing[0]
	case !e.partial:
		return nil
	}
	return query.Failf(query.ReasonPartialResponse, "a part of the server did not answer, so data is missing (partialResponsePolicy: Accept would use the rest): %s", what)
}

// aboutQuery reports whether a warning is about the query, as Prometheus marks them since 2.48. All
// others of Prometheus, Thanos and Cortex are of a storage that failed.
func aboutQuery(warning string) bool {
	return strings.HasPrefix(warning, "PromQL ") || strings.HasSuffix(warning, " annotations omitted")
}
