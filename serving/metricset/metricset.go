// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricset has constructors for the metrics of a package, which registers them together.
package metricset

import "k8s.io/component-base/metrics"

// Set holds the metrics of one package.
type Set struct {
	prefix string
	all    []metrics.Registerable
}

// New returns an empty set. The name of each metric begins with prefix.
func New(prefix string) *Set { return &Set{prefix: prefix} }

// Register passes all metrics to register, for example to legacyregistry.MustRegister. Before that they cost nothing and
// count nothing.
func (s *Set) Register(register func(...metrics.Registerable)) { register(s.all...) }

// CounterVec adds counters.
func (s *Set) CounterVec(name, help string, labels ...string) *metrics.CounterVec {
	return add(s, metrics.NewCounterVec(&metrics.CounterOpts{Name: s.prefix + name, Help: help, StabilityLevel: metrics.ALPHA}, labels))
}

// Gauge adds a gauge.
func (s *Set) Gauge(name, help string) *metrics.Gauge {
	return add(s, metrics.NewGauge(&metrics.GaugeOpts{Name: s.prefix + name, Help: help, StabilityLevel: metrics.ALPHA}))
}

// GaugeVec adds gauges.
func (s *Set) GaugeVec(name, help string, labels ...string) *metrics.GaugeVec {
	return add(s, metrics.NewGaugeVec(&metrics.GaugeOpts{Name: s.prefix + name, Help: help, StabilityLevel: metrics.ALPHA}, labels))
}

// Histogram adds a histogram.
func (s *Set) Histogram(name, help string, buckets []float64) *metrics.Histogram {
	return add(s, metrics.NewHistogram(&metrics.HistogramOpts{Name: s.prefix + name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA}))
}

// HistogramVec adds histograms.
func (s *Set) HistogramVec(name, help string, buckets []float64, labels ...string) *metrics.HistogramVec {
	return add(s, metrics.NewHistogramVec(&metrics.HistogramOpts{Name: s.prefix + name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA}, labels))
}

func add[M metrics.Registerable](s *Set, m M) M {
	s.all = append(s.all, m)
	return m
}
