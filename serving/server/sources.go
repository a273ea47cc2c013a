// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/rungroup"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricsapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// reasonInvalidSpec is the reason of a source with an invalid spec.
const reasonInvalidSpec query.Reason = "InvalidSpec"

// sourceRegistry holds the sources of the spec. An invalid or failing source does not affect
// the others.
type sourceRegistry struct {
	clock clock.WithTicker
	// secrets returns credentials, configMaps CA certificates, and tokens those of ServiceAccounts.
	secrets    sourceclient.Secrets
	configMaps sourceclient.ConfigMaps
	tokens     sourceclient.Tokens
	// metricsAPITokens returns tokens for other implementations, and address that of their Services.
	metricsAPITokens sourceclient.Tokens
	address          metricsapi.Address
	// extraCA is serving.caConfigMapKeyRef.
	extraCA atomic.Pointer[v1alpha1.ConfigMapKeyReference]
	// onSeries is called when the known series of a matcher have changed.
	onSeries func(source, matcher string)

	mu sync.Mutex
	// sources are in the order of the spec.
	sources []*namedSource
	running rungroup.Group
}

// namedSource is a source of the spec. It implements query.Source.
type namedSource struct {
	// spec is guarded by the registry's mu.
	spec v1alpha1.SourceSpec
	// source is nil if the spec is invalid; then invalid is the error.
	source interface {
		query.Source
		Run(ctx context.Context)
		Health() v1alpha1.SourceHealth
	}
	// prometheus is the source if it is one, and nil otherwise.
	prometheus *prometheus.Source
	invalid    error
	since      metav1.Time
	// matchers select the series that rules are about.
	matchers []string
	stop     func()
}

// apply replaces the sources by those of a spec.
func (r *sourceRegistry) apply(specs []v1alpha1.SourceSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := slices.Clone(r.sources)
	r.sources = nil
	for i := range specs {
		var old *namedSource
		if at := slices.IndexFunc(before, func(o *namedSource) bool { return o.spec.Name == specs[i].Name }); at >= 0 {
			old = before[at]
			before = slices.Delete(before, at, at+1)
		}
		r.sources = append(r.sources, r.update(old, specs[i]))
	}
	for _, removed := range before {
		removed.stop()
	}
}

// update returns the source for a spec: the old one of that name (nil for none) if it would
// give the same results, else a new one, so that cached results of the old one are dropped.
func (r *sourceRegistry) update(old *namedSource, spec v1alpha1.SourceSpec) *namedSource {
	if old != nil && reflect.DeepEqual(old.spec, spec) {
		return old
	}
	next := &namedSource{spec: spec, since: metav1.NewTime(r.clock.Now()), stop: func() {}}
	switch {
	case spec.MetricsAPI != nil:
		if old != nil && reflect.DeepEqual(old.spec.MetricsAPI, spec.MetricsAPI) && old.source != nil {
			old.spec = spec
			return old
		}
		options := r.options(spec.Name)
		options.Tokens = r.metricsAPITokens
		next.source = metricsapi.New(options, r.address, *spec.MetricsAPI)
	case spec.Prometheus == nil:
		next.invalid = errors.New("no kind of source is set that this version knows, such as prometheus")
	case old != nil && old.prometheus != nil:
		// Keep its connections, known series and health.
		if err := old.prometheus.Apply(*spec.Prometheus); err != nil {
			next.invalid = err
			break
		}
		if sameResults(old.spec, spec) {
			old.spec = spec
			return old
		}
		next.source, next.prometheus, next.matchers, next.stop = old.source, old.prometheus, old.matchers, old.stop
		return next
	default:
		next.prometheus, next.invalid = prometheus.New(r.options(spec.Name), *spec.Prometheus)
		next.source = next.prometheus
	}
	if old != nil {
		old.stop()
	}
	if next.invalid != nil {
		next.source, next.prometheus = nil, nil
		return next
	}
	if next.prometheus != nil {
		next.prometheus.Series().OnChange(func(matcher string) { r.onSeries(spec.Name, matcher) })
	}
	next.stop = r.running.Go(next.source.Run)
	return next
}

// options returns those of the client of a source.
func (r *sourceRegistry) options(name string) sourceclient.Options {
	return sourceclient.Options{Name: name, Secrets: r.secrets, ConfigMaps: r.configMaps, ExtraCA: r.extraCA.Load, Tokens: r.tokens, Clock: r.clock}
}

// sameResults reports whether sources of both specs give the same results: they name the
// same server and credentials. Other fields do not affect cached results.
func sameResults(a, b v1alpha1.SourceSpec) bool {
	relevant := func(of v1alpha1.SourceSpec) v1alpha1.SourceSpec {
		p := *of.Prometheus
		p.Interval, p.Timeout, p.SeriesInterval, p.SeriesLookback, p.Tenancy = nil, nil, nil, nil, v1alpha1.SourceTenancy{}
		of.Prometheus, of.Optional = &p, false
		return of
	}
	return reflect.DeepEqual(relevant(a), relevant(b))
}

// run runs the sources until the context ends.
func (r *sourceRegistry) run(ctx context.Context) { r.running.Run(ctx) }

// find returns the source of a name for the evaluator, which drops cached results when it
// gets another one than before.
func (r *sourceRegistry) find(name string) (query.Source, bool) {
	if s := r.lookup(name); s != nil {
		return s, true
	}
	return nil, false
}

// Evaluate implements query.Source.
func (s *namedSource) Evaluate(ctx context.Context, q query.Query, at time.Time) (*query.Result, error) {
	if s.source == nil {
		return nil, s.failure()
	}
	return s.source.Evaluate(ctx, q, at)
}

// Concurrency implements query.ConcurrentSource.
func (s *namedSource) Concurrency() int {
	if c, ok := s.source.(query.ConcurrentSource); ok {
		return c.Concurrency()
	}
	return 0
}

// Answered implements query.ProbedSource.
func (s *namedSource) Answered() time.Time {
	if p, ok := s.source.(query.ProbedSource); ok {
		return p.Answered()
	}
	return time.Time{}
}

// failure returns the error of a source with an invalid spec.
func (s *namedSource) failure() *query.Failure {
	return &query.Failure{Source: s.spec.Name, Reason: reasonInvalidSpec, Message: s.invalid.Error()}
}

func (r *sourceRegistry) lookup(name string) *namedSource {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sources {
		if s.spec.Name == name {
			return s
		}
	}
	return nil
}

// setMatchers sets the series that the sources look for, by source name.
func (r *sourceRegistry) setMatchers(matchers map[string][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sources {
		if s.prometheus != nil && !slices.Equal(s.matchers, matchers[s.spec.Name]) {
			s.matchers = matchers[s.spec.Name]
			s.prometheus.Series().SetMatchers(s.matchers)
		}
	}
}

// resources returns what another implementation lists in its discovery.
func (r *sourceRegistry) resources(name string) []metav1.APIResource {
	if s := r.lookup(name); s != nil {
		if other, ok := s.source.(*metricsapi.Source); ok {
			return other.Resources()
		}
	}
	return nil
}

// series returns the series of a matcher that a source knows.
func (r *sourceRegistry) series(name, matcher string) (series.Found, bool) {
	s := r.lookup(name)
	switch {
	case s == nil, s.source != nil && s.prometheus == nil:
		return series.Found{}, false
	case s.prometheus == nil:
		return series.Found{Err: s.failure()}, true
	}
	return s.prometheus.Series().Found(matcher), true
}

// health returns the health of the sources in the order of the spec.
func (r *sourceRegistry) health() []v1alpha1.SourceHealth {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []v1alpha1.SourceHealth
	for _, s := range r.sources {
		if s.source == nil {
			all = append(all, v1alpha1.SourceHealth{Name: s.spec.Name, Reason: string(reasonInvalidSpec), Message: s.invalid.Error(), Since: s.since})
			continue
		}
		h := s.source.Health()
		h.Name = s.spec.Name
		all = append(all, h)
	}
	return all
}

// ready returns nil once each source that is not optional has answered and its series are
// known, and otherwise what is missing. Invalid sources do not count.
func (r *sourceRegistry) ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sources {
		if s.spec.Optional || s.source == nil {
			continue
		}
		if h := s.source.Health(); !h.Healthy {
			return fmt.Errorf("source %q has not answered: %s: %s", s.spec.Name, h.Reason, h.Message)
		}
		for _, matcher := range s.matchers {
			if found := s.prometheus.Series().Found(matcher); found.Time.IsZero() && found.Err == nil {
				return fmt.Errorf("source %q has not said which series there are for %s", s.spec.Name, matcher)
			}
		}
	}
	return nil
}
