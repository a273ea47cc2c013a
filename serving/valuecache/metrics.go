// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"golang.org/x/time/rate"
	"k8s.io/component-base/metrics"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	metricsNamespace = "metrics_backend"
	metricsSubsystem = "answers"

	// logRate and logBurst limit the lines about single metrics, per second: when a
	// source fails, the metrics tell more than thousands of lines.
	logRate  = rate.Limit(1)
	logBurst = 25
)

// group is the API group. No label has a metric's name or a selector for its value.
var (
	feedsHeld = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "feeds",
		Help:           "Number of different metrics and selections that are watched, or were until a few seconds ago.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group"})
	pointsHeld = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "points",
		Help:           "Number of values that are held for watches.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group"})
	pointsPublished = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "published_points_total",
		Help:           "Number of values whose time or value was new, and that were published to watches.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group"})
	failuresTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "failures_total",
		Help: "Number of times that a watched metric got no new values, by the reason of the source's failure; " +
			"NotRead where the metric does not exist any more, or its objects cannot be resolved.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"group", "reason"})
)

// RegisterMetrics registers the metrics, for example with
// legacyregistry.MustRegister. Without it they cost nothing and count nothing.
func RegisterMetrics(register func(...metrics.Registerable)) {
	register(feedsHeld, pointsHeld, pointsPublished, failuresTotal)
}

// meter counts for one store.
type meter struct {
	group         string
	feeds, points metrics.GaugeMetric
	published     metrics.CounterMetric
}

func newMeter(group string) *meter {
	return &meter{
		group: group, feeds: feedsHeld.WithLabelValues(group), points: pointsHeld.WithLabelValues(group),
		published: pointsPublished.WithLabelValues(group),
	}
}

func (m *meter) fail(err error) { failuresTotal.WithLabelValues(m.group, reasonOf(err)).Inc() }

// log logs a change of how a feed does, if there is room for the line.
func (s *Store) log(message string, f *feed, more ...any) {
	if !s.lines.AllowN(s.clock.Now(), 1) {
		return
	}
	s.mu.RLock()
	logger := s.logger
	s.mu.RUnlock()
	logger.Info(message, append([]any{"group", s.meter.group, "feed", text.Truncate(f.ID, maxLogged)}, more...)...)
}

// maxLogged is how much of what a client chose freely a line repeats, in bytes.
const maxLogged = 256
