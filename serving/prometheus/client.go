// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	promapi "github.com/prometheus/client_golang/api"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// boundedClient is the client below the generated one: it hands on only what is
// bounded and could be an answer. All its errors are Failures without a source.
type boundedClient struct {
	// Client makes the URLs.
	promapi.Client
	http        *http.Client
	maxBytes    int64
	maxSamples  int
	credentials *credentials
}

var _ promapi.Client = (*boundedClient)(nil)

// Do implements api.Client. A response comes with a failure too: by its status the
// generated client chooses to ask again with GET, where a server knows no POST.
func (c *boundedClient) Do(ctx context.Context, r *http.Request) (*http.Response, []byte, error) {
	resp, err := c.http.Do(r.WithContext(ctx))
	if err != nil {
		return nil, nil, classify(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return resp, nil, classifyStatus(resp)
	}
	if !maybeJSON(resp.Header) {
		return resp, nil, notJSON(resp)
	}
	// Of a compressed answer the length is unknown; what counts are the bytes that come out.
	if resp.ContentLength > c.maxBytes {
		return resp, nil, tooLarge(fmt.Sprintf("the answer has %d bytes", resp.ContentLength), c.maxBytes)
	}
	body := bytes.NewBuffer(make([]byte, 0, max(resp.ContentLength+1, bytes.MinRead)))
	if _, err := body.ReadFrom(io.LimitReader(resp.Body, c.maxBytes+1)); err != nil {
		return resp, nil, classify(ctx, err)
	}
	if int64(body.Len()) > c.maxBytes {
		return resp, nil, tooLarge("the answer is larger", c.maxBytes)
	}
	if n := objects(body.Bytes()); n > 2*c.maxSamples {
		return resp, nil, tooLarge(fmt.Sprintf("the answer has more than %d samples", c.maxSamples), c.maxBytes)
	}
	return resp, body.Bytes(), nil
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

// objects counts the objects in a body of JSON, in linear time and without memory.
// A sample has two of them: itself and its labels.
func objects(body []byte) int {
	n, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			inString = !inString
		case '\\':
			i++
		case '{':
			if !inString {
				n++
			}
		}
	}
	return n
}

// excerptSize bounds what is read of an answer that is an error.
const excerptSize = 4 << 10

// excerpt reads the beginning of a body that is not an answer. What cannot be read
// does not matter beside the status.
func excerpt(r io.Reader) []byte {
	b, err := io.ReadAll(io.LimitReader(r, excerptSize))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && len(b) == 0 {
		return nil
	}
	return b
}

func tooLarge(what string, limit int64) *query.Failure {
	return &query.Failure{Reason: query.ReasonTooLarge, Message: fmt.Sprintf(
		"%s; maxResponseSize is %d bytes: aggregate or select more in the query, or raise maxResponseSize", what, limit)}
}
