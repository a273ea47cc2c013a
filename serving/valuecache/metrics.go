// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"golang.org/x/time/rate"
	"k8s.io/component-base/metrics"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricset"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// logRate and logBurst limit the lines about single metrics, per second: when a
	// source fails, the metrics tell more than thousands of lines.
	logRate  = rate.Limit(1)
	logBurst = 25
)

// MetricSet has the metrics of this package; group is the API group. No label has a metric's name or a selector for its value.
var MetricSet = metricset.New("metrics_backend_value_cache_")

var (
	cachedEntries = MetricSet.GaugeVec("entries",
		"Number of different metrics and selections that are watched, or were until a few seconds ago.", "group")
	cachedPoints    = MetricSet.GaugeVec("points", "Number of cached values.", "group")
	publishedPoints = MetricSet.CounterVec("published_points_total",
		"Number of values whose time or value was new, and that were published to watches.", "group")
	failuresTotal = MetricSet.CounterVec("failures_total",
		"Number of times that a watched metric got no new values, by the reason of the source's failure, or why one of the metric's series has no value; "+
			"NotRead where the metric does not exist any more, or its objects cannot be resolved.", "group", "reason")
)

// meter has the metrics of one cache.
type meter struct {
	group           string
	entries, points metrics.GaugeMetric
	published       metrics.CounterMetric
}

func newMeter(group string) *meter {
	return &meter{
		group: group, entries: cachedEntries.WithLabelValues(group), points: cachedPoints.WithLabelValues(group),
		published: publishedPoints.WithLabelValues(group),
	}
}

func (m *meter) fail(err error) {
	reason, _ := query.ReasonOf(err, "NotRead")
	failuresTotal.WithLabelValues(m.group, reason).Inc()
}

// log logs a change of an entry, at a limited rate.
func (s *Cache) log(message string, e *entry, more ...any) {
	if !s.lines.AllowN(s.clock.Now(), 1) {
		return
	}
	s.mu.RLock()
	logger := s.logger
	s.mu.RUnlock()
	logger.Info(message, append([]any{"group", s.meter.group, "subscription", text.Truncate(e.ID, maxLogged)}, more...)...)
}

// maxLogged is how much of what a client chose freely a line repeats, in bytes.
const maxLogged = 256
