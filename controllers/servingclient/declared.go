// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// declaredTimeout bounds the request for declared metrics: a pod waits up to 5
	// seconds for its sources before it answers with what it has.
	declaredTimeout = 10 * time.Second
	// maxDeclaredHealth bounds the state of one metric, in bytes. It takes less than 8 KiB.
	maxDeclaredHealth = 16 << 10
)

// Declared passes the state of each CustomMetric and ExternalMetric in a pod to visit, one
// at a time: the report has no limit, since the metrics of one team would count towards
// that of all.
func (c *Client) Declared(ctx context.Context, pod Pod, visit func(v1alpha1.DeclaredHealth)) error {
	s, err := c.newSession(pod, declaredTimeout, maxDeclaredHealth)
	if err != nil {
		return err
	}
	defer s.http.CloseIdleConnections()
	body, found, err := s.open(ctx, v1alpha1.DeclaredPath, "")
	if err != nil {
		return err
	}
	if !found {
		return noReport(v1alpha1.DeclaredPath)
	}
	defer func() { _ = body.Close() }()
	if err := decodeDeclared(body, s.limit, visit); err != nil {
		return fmt.Errorf("read the answer to %s: %w", v1alpha1.DeclaredPath, stableError(err))
	}
	return nil
}

// decodeDeclared decodes a v1alpha1.DeclaredReport whose metrics, and other fields, have at
// most limit bytes each.
func decodeDeclared(body io.Reader, limit int64, visit func(v1alpha1.DeclaredHealth)) error {
	d := boundedDecoder{limited: &io.LimitedReader{R: body, N: limit}, limit: limit}
	d.decoder = json.NewDecoder(d.limited)
	if err := d.open('{'); err != nil {
		return err
	}
	for d.decoder.More() {
		field, err := d.decoder.Token()
		if err != nil {
			return d.explain(err)
		}
		if field != "metrics" {
			var skipped json.RawMessage
			if err := d.decode(&skipped); err != nil {
				return err
			}
			continue
		}
		if err := d.open('['); err != nil {
			return err
		}
		for d.decoder.More() {
			var health v1alpha1.DeclaredHealth
			if err := d.decode(&health); err != nil {
				return err
			}
			visit(health)
		}
		if _, err := d.decoder.Token(); err != nil {
			return d.explain(err)
		}
	}
	_, err := d.decoder.Token()
	return d.explain(err)
}

// boundedDecoder limits the bytes of each value of a JSON stream.
type boundedDecoder struct {
	decoder *json.Decoder
	limited *io.LimitedReader
	limit   int64
}

func (d *boundedDecoder) open(delimiter json.Delim) error {
	token, err := d.decoder.Token()
	if err == nil && token != delimiter {
		err = errors.New("it is no report of metrics")
	}
	return d.explain(err)
}

func (d *boundedDecoder) decode(into any) error {
	err := d.explain(d.decoder.Decode(into))
	// The decoder has read further: these bytes count for the next value.
	d.limited.N = d.limit
	return err
}

// explain returns the error to report: the end of the limit looks like that of the stream.
func (d *boundedDecoder) explain(err error) error {
	switch {
	case err != nil && d.limited.N <= 0:
		return fmt.Errorf("a metric in it takes more than %d bytes", d.limit)
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}
