// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"time"

	"k8s.io/component-base/metrics"
)

const (
	metricsNamespace = "metrics_backend"
	metricsSubsystem = "query"
)

// How those who ask are served, as a metric label's values.
const (
	askedHit     = "hit"
	askedShared  = "shared"
	askedMiss    = "miss"
	askedRefused = "refused"
)

// No label has an expression, a metric or a client for its value: none of these is
// bounded. Sources are those of spec.sources.
var (
	evaluationsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "evaluations_total",
		Help: "Number of evaluations that ended, by source and result: Success, the reason of the failure as in the status of the MetricsBackend, " +
			"or Abandoned, of a source that was replaced meanwhile.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"source", "result"})
	evaluationDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "evaluation_duration_seconds",
		Help:           "Time in seconds from when a question was put to its source until it was answered or failed.",
		Buckets:        []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		StabilityLevel: metrics.ALPHA,
	}, []string{"source"})
	evaluationsRunning = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "evaluations_in_flight",
		Help:           "Number of evaluations under way, by source.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"source"})
	evaluationsQueued = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "evaluations_queued",
		Help:           "Number of questions that wait since as many evaluations of their source are under way as may be.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"source"})
	sourceSuspended = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "source_suspended",
		Help:           "1 while a source fails whatever it is asked, so that questions fail at once and but one at a time tries it; otherwise 0.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"source"})
	askedTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "asked_total",
		Help: "Number of times that a question was asked, by result: hit, the answer or failure of the interval was there; shared, the evaluation was under way; " +
			"miss, it was begun; refused, it was not evaluated, since its source is gone or suspended or there is too much to do.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	answerAge = metrics.NewHistogram(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "answer_age_seconds",
		Help:           "Time in seconds from the instant for which a question was evaluated until the answer was given to one who asked.",
		Buckets:        []float64{0.1, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 60, 120, 300, 600, 3600},
		StabilityLevel: metrics.ALPHA,
	})
	questionsHeld = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "questions",
		Help:           "Number of different questions that are held.",
		StabilityLevel: metrics.ALPHA,
	})
	questionsFollowed = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "questions_followed",
		Help:           "Number of different questions that are evaluated each interval for watches.",
		StabilityLevel: metrics.ALPHA,
	})
	samplesHeld = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "samples",
		Help:           "Number of samples of all answers that are held.",
		StabilityLevel: metrics.ALPHA,
	})
	expressionBytesHeld = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "expression_bytes",
		Help:           "Bytes of the expressions of all questions that are held.",
		StabilityLevel: metrics.ALPHA,
	})
)

// RegisterMetrics registers the metrics, for example with
// legacyregistry.MustRegister. Without it they cost nothing and count nothing.
func RegisterMetrics(register func(...metrics.Registerable)) {
	register(evaluationsTotal, evaluationDuration, evaluationsRunning, evaluationsQueued, sourceSuspended,
		askedTotal, answerAge, questionsHeld, questionsFollowed, samplesHeld, expressionBytesHeld)
}

func countAsked(result string) { askedTotal.WithLabelValues(result).Inc() }

// served counts the age of an answer that is given away.
func served(a *Result, now time.Time) *Result {
	if a != nil {
		answerAge.Observe(max(now.Sub(a.Time), 0).Seconds())
	}
	return a
}

// Results of evaluations that are no Reasons.
const (
	resultSuccess   = "Success"
	resultAbandoned = "Abandoned"
)

// meter counts the evaluations of one source.
type meter struct {
	source                     string
	running, queued, suspended metrics.GaugeMetric
	took                       metrics.ObserverMetric
}

func newMeter(source string) meter {
	return meter{
		source:  source,
		running: evaluationsRunning.WithLabelValues(source), queued: evaluationsQueued.WithLabelValues(source),
		suspended: sourceSuspended.WithLabelValues(source), took: evaluationDuration.WithLabelValues(source),
	}
}

func (m *meter) evaluated(failure *Failure, abandoned bool, took time.Duration) {
	result := resultSuccess
	switch {
	case abandoned:
		result = resultAbandoned
	case failure != nil:
		result = string(failure.Reason)
	}
	evaluationsTotal.WithLabelValues(m.source, result).Inc()
	m.took.Observe(took.Seconds())
}

// remove drops the gauges of a source that is gone; counters stay, as counters do.
func (m *meter) remove() {
	evaluationsRunning.DeleteLabelValues(m.source)
	evaluationsQueued.DeleteLabelValues(m.source)
	sourceSuspended.DeleteLabelValues(m.source)
}
