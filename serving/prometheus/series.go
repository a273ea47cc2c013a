// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// Series returns the discovery of the source's series.
func (s *Source) Series() *series.Discovery { return s.series }

var _ series.Lookup = (*Source)(nil).lookup

const (
	// minSeriesTimeout is the least timeout for lookups of series.
	minSeriesTimeout = time.Minute
	// maxSeriesResponseBytes is far above what a very large cluster needs: 100,000 containers
	// have about 10 million series of 300 bytes. It ends an endless response.
	maxSeriesResponseBytes = 4 << 30
	// maxSeriesBytes limits the labels of one series, which are in memory at a time.
	maxSeriesBytes = 1 << 20
)

// lookup implements series.Lookup. Only one series is in memory at a time, so that responses may
// be long. What was read of a response that is too long or too slow is kept: rules that select
// nearly everything are common, and another lookup would fail likewise.
func (s *Source) lookup(ctx context.Context, matcher string, from, to time.Time, visit func(map[string]string)) error {
	truncated := false
	err := s.request(ctx, forSeries, query.Query{}, func(ctx context.Context, n *connection) error {
		visited := false
		body := &boundedReader{left: n.settings.seriesResponseBytes, maxItem: n.settings.seriesBytes}
		_, err := n.call(ctx, pathSeries, url.Values{
			"match[]": {matcher}, "start": {timestamp(from)}, "end": {timestamp(to)}, "timeout": {serverTimeout(ctx)},
		}, body, seriesReader(func(labels map[string]string) {
			visited = true
			body.nextItem()
			visit(labels)
		}))
		truncated = visited && (body.exceeded || err != nil && errors.Is(context.Cause(ctx), sourceclient.ErrTimeout))
		if body.exceeded {
			return query.Failf(query.ReasonTooLarge, "the series that match take more than %d bytes: select fewer in seriesQuery", n.settings.seriesResponseBytes)
		}
		return err
	})
	if truncated {
		return series.ErrTruncated
	}
	return err
}

// seriesReader decodes an array of label sets, all into the same map.
func seriesReader(visit func(map[string]string)) dataReader {
	return func(d *json.Decoder) error {
		labels := map[string]string{}
		return elements(d, func() error {
			clear(labels)
			if err := d.Decode(&labels); err != nil {
				return err
			}
			if labels == nil {
				return errors.New("a series is null")
			}
			visit(labels)
			return nil
		})
	}
}
