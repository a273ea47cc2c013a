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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// reasonInvalidSpec is the reason of a source whose spec cannot be used.
const reasonInvalidSpec query.Reason = "InvalidSpec"

// sourceSet are the sources of the spec, each by itself: one that cannot be used, or
// fails, stops no other.
type sourceSet struct {
	clock clock.WithTicker
	// secrets give the credentials.
	secrets prometheus.Secrets
	// observe is called when something else became known of the series that match.
	observe func(source, matcher string)

	mu sync.Mutex
	// sources are in the order of the spec.
	sources []*source
	// begun is run's context; nil before.
	begun   context.Context
	running sync.WaitGroup
}

// source is one of the spec.
type source struct {
	// spec changes, under the set's mu, where there is a prometheus.
	spec v1alpha1.SourceSpec
	// prometheus is nil where the spec cannot be used; then invalid is why.
	prometheus *prometheus.Source
	invalid    error
	since      metav1.Time
	// matchers are the series that rules are about.
	matchers []string
	stop     context.CancelFunc
}

// apply puts the sources of a spec in force. errs are what is wrong with the spec as a
// whole; those of a source make it one that answers nothing.
func (s *sourceSet) apply(ctx context.Context, specs []v1alpha1.SourceSpec, errs field.ErrorList) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.sources
	s.sources = nil
	for i := range specs {
		var old *source
		if at := slices.IndexFunc(before, func(o *source) bool { return o.spec.Name == specs[i].Name }); at >= 0 {
			old = before[at]
			before = slices.Delete(slices.Clone(before), at, at+1)
		}
		s.sources = append(s.sources, s.source(ctx, old, specs[i], invalidAt(errs, field.NewPath("spec", "sources").Index(i))))
	}
	for _, gone := range before {
		gone.end()
	}
}

// invalidAt returns the errors at a path and below.
func invalidAt(errs field.ErrorList, path *field.Path) error {
	var of field.ErrorList
	for _, err := range errs {
		if within(err.Field, path.String()) {
			of = append(of, err)
		}
	}
	return of.ToAggregate()
}

// source makes a source of a spec, or has the one of that name before go on with it.
func (s *sourceSet) source(ctx context.Context, old *source, spec v1alpha1.SourceSpec, invalid error) *source {
	if old != nil && reflect.DeepEqual(old.spec, spec) && (invalid == nil) == (old.invalid == nil) {
		return old
	}
	next := &source{spec: spec, since: metav1.NewTime(s.clock.Now())}
	switch {
	case invalid != nil:
		next.invalid = invalid
	case spec.Prometheus == nil:
		next.invalid = errors.New("no kind of source is set that this version knows, such as prometheus")
	case old != nil && old.prometheus != nil:
		// Its connections, what it knows of series, and its health stay.
		if err := old.prometheus.Apply(*spec.Prometheus); err != nil {
			next.invalid = err
			break
		}
		if sameAnswers(old.spec, spec) {
			old.spec = spec
			return old
		}
		next.prometheus, next.matchers, next.stop = old.prometheus, old.matchers, old.stop
		return next
	default:
		next.prometheus, next.invalid = prometheus.New(prometheus.Options{Name: spec.Name, Secrets: s.secrets, Clock: s.clock}, *spec.Prometheus)
	}
	if old != nil {
		old.end()
	}
	if next.invalid != nil {
		next.prometheus = nil
		klog.FromContext(ctx).Error(next.invalid, "A source cannot be used; the others are", "source", spec.Name)
		return next
	}
	found := next.prometheus.Series()
	found.OnChange(func(matcher string) { s.observe(spec.Name, matcher) })
	s.begin(next) //nolint:contextcheck // It lasts as long as run.
	return next
}

// sameAnswers says that a source of the one spec answers as one of the other: from the
// same server, with the same credentials. What else has changed is for others to follow,
// such as rules, and voids no answers.
func sameAnswers(a, b v1alpha1.SourceSpec) bool {
	answering := func(of v1alpha1.SourceSpec) v1alpha1.SourceSpec {
		p := *of.Prometheus
		p.Interval, p.Timeout, p.SeriesInterval, p.SeriesMaxAge, p.Tenancy = nil, nil, nil, nil, v1alpha1.SourceTenancy{}
		of.Prometheus, of.Optional = &p, false
		return of
	}
	return reflect.DeepEqual(answering(a), answering(b))
}

// begin runs a source if there is a context to do so in. The caller holds mu.
func (s *sourceSet) begin(of *source) {
	if of.prometheus == nil || s.begun == nil || s.begun.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(s.begun)
	of.stop = stop
	s.running.Go(func() {
		of.prometheus.Run(ctx)
		of.prometheus.Close()
	})
}

func (o *source) end() {
	if o.stop != nil {
		o.stop()
	}
}

// run runs the sources until the context ends.
func (s *sourceSet) run(ctx context.Context) {
	s.mu.Lock()
	s.begun = ctx
	for _, of := range s.sources {
		s.begin(of) //nolint:contextcheck // It lasts as long as run, whose context it has.
	}
	s.mu.Unlock()
	<-ctx.Done()
	// Whoever begins a source holds mu and looks at the context.
	s.mu.Lock()
	s.sources = nil
	s.mu.Unlock()
	s.running.Wait()
}

// find returns the source of a name, for the evaluator. It is another one whenever its spec
// has changed so that it may answer otherwise: what it answered before is void.
func (s *sourceSet) find(name string) (query.Source, bool) {
	if of := s.lookup(name); of != nil {
		return of, true
	}
	return nil, false
}

// Evaluate implements query.Source.
func (o *source) Evaluate(ctx context.Context, expression string, at time.Time) (*query.Result, error) {
	if o.prometheus == nil {
		return nil, o.failure()
	}
	return o.prometheus.Evaluate(ctx, expression, at)
}

// failure is that of a source whose spec cannot be used.
func (o *source) failure() *query.Failure {
	return &query.Failure{Source: o.spec.Name, Reason: reasonInvalidSpec, Message: o.invalid.Error()}
}

func (s *sourceSet) lookup(name string) *source {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.sources {
		if of.spec.Name == name {
			return of
		}
	}
	return nil
}

// follow has a source look for series.
func (s *sourceSet) follow(matchers map[string][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.sources {
		if of.prometheus != nil && !slices.Equal(of.matchers, matchers[of.spec.Name]) {
			of.matchers = matchers[of.spec.Name]
			of.prometheus.Series().SetMatchers(of.matchers)
		}
	}
}

// found returns what a source knows of series.
func (s *sourceSet) found(name, matcher string) (series.Found, bool) {
	of := s.lookup(name)
	switch {
	case of == nil:
		return series.Found{}, false
	case of.prometheus == nil:
		return series.Found{Err: of.failure()}, true
	}
	return of.prometheus.Series().Found(matcher), true
}

// health returns how the sources do, in the order of the spec.
func (s *sourceSet) health() []v1alpha1.SourceHealth {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []v1alpha1.SourceHealth
	for _, of := range s.sources {
		all = append(all, of.health())
	}
	return all
}

func (o *source) health() v1alpha1.SourceHealth {
	if o.prometheus == nil {
		return v1alpha1.SourceHealth{Name: o.spec.Name, Reason: string(reasonInvalidSpec), Message: o.invalid.Error(), Since: o.since}
	}
	h := o.prometheus.Health()
	h.Name = o.spec.Name
	return h
}

// waiting returns what the first readiness waits for: a source that is not optional,
// to answer and to say which series there are; nil where there is nothing.
func (s *sourceSet) waiting() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.sources {
		// One that cannot be used will not become better by waiting.
		if of.spec.Optional || of.prometheus == nil {
			continue
		}
		if h := of.prometheus.Health(); !h.Healthy {
			return fmt.Errorf("source %q has not answered: %s %s", of.spec.Name, h.Reason, h.Message)
		}
		for _, matcher := range of.matchers {
			if found := of.prometheus.Series().Found(matcher); found.Time.IsZero() && found.Err == nil {
				return fmt.Errorf("source %q has not said which series there are for %s", of.spec.Name, matcher)
			}
		}
	}
	return nil
}
