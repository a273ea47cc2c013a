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

// lookup implements series.Lookup. A series is dropped once it was visited, so that an
// answer takes no more memory than what rules need of it.
func (s *Source) lookup(ctx context.Context, matcher string, from, to time.Time, visit func(map[string]string)) error {
	return s.ask(ctx, false, func(ctx context.Context, n *connection) error {
		_, err := n.call(ctx, pathSeries, url.Values{
			"match[]": {matcher}, "start": {timestamp(from)}, "end": {timestamp(to)}, "timeout": {serverTimeout(ctx)},
		}, seriesReader(visit))
		var f *query.Failure
		if errors.As(err, &f) && f.Reason == query.ReasonTooLarge {
			return failf(f.Reason, "the series that match take more than maxResponseSize (%d bytes): select fewer in seriesQuery, or raise it", n.settings.maxBytes)
		}
		return err
	})
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
