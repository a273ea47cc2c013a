// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"golang.org/x/time/rate"
	"k8s.io/component-base/metrics"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	metricsNamespace = "metrics_backend"
	metricsSubsystem = "value_cache"

	// logRate and logBurst limit the lines about single metrics, per second: when a
	// source fails, the metrics tell more than thousands of lines.
	logRate  = rate.Limit(1)
	logBurst = 25
)

// group is the API group. No label has a metric's name or a selector for its value.
var (
	cachedEntries = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "entries",
		Help:           "Number of different metrics and selections that are watched, or were until a few seconds ago.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group"})
	cachedPoints = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "points",
		Help:           "Number of cached values.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group"})
	publishedPoints = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "published_points_total",
		Help:           "Number of values whose time or value was new, and that were published to watches.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group"})
	failuresTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "failures_total",
		Help: "Number of times that a watched metric got no new values, by the reason of the source's failure, or why one of the metric's series has no value; " +
			"NotRead where the metric does not exist any more, or its objects cannot be resolved.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group", "reason"})
)

// RegisterMetrics registers the metrics, for example with
// legacyregistry.MustRegister. Without it they cost nothing and count nothing.
func RegisterMetrics(register func(...metrics.Registerable)) {
	register(cachedEntries, cachedPoints, publishedPoints, failuresTotal)
}

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
