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
)

// Series says which series the source has, of the matchers that it is given to follow.
func (s *Source) Series() *series.Discovery { return s.series }

var _ series.Lookup = (*Source)(nil).lookup

const (
	// minLookTimeout is how long an answer about series may take, whatever queries may.
	minLookTimeout = time.Minute
	// maxLookBytes is far above what the series of a very large cluster take: one of
	// 100,000 containers has some 10 million, of 300 bytes. It ends an endless answer.
	maxLookBytes = 4 << 30
	// maxSeriesBytes bounds the labels of one series, which are in memory at a time.
	maxSeriesBytes = 1 << 20
)

// lookup implements series.Lookup. A series is dropped once it was visited, so that an
// answer takes no more memory than what rules need of it, and may be as long as it takes.
// Of one that is too long, or takes too long, the part that came is not thrown away: rules
// that select nearly everything are common, and another look would end no better.
func (s *Source) lookup(ctx context.Context, matcher string, from, to time.Time, visit func(map[string]string)) error {
	cut := false
	err := s.ask(ctx, forLook, func(ctx context.Context, n *connection) error {
		visited := false
		body := &boundedReader{left: n.settings.lookBytes, stretch: n.settings.seriesBytes}
		_, err := n.call(ctx, pathSeries, url.Values{
			"match[]": {matcher}, "start": {timestamp(from)}, "end": {timestamp(to)}, "timeout": {serverTimeout(ctx)},
		}, body, seriesReader(func(labels map[string]string) {
			visited = true
			body.mark()
			visit(labels)
		}))
		cut = visited && (body.exceeded || err != nil && errors.Is(context.Cause(ctx), errTimeout))
		if body.exceeded {
			return failf(query.ReasonTooLarge, "the series that match take more than %d bytes: select fewer in seriesQuery", n.settings.lookBytes)
		}
		return err
	})
	if cut {
		return series.ErrTruncated
	}
	return err
}

// seriesReader reads an array of label sets into one map, again and again.
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
