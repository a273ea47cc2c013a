// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/metrics/pkg/apis/external_metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics/policy"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Policies has the policies in force and the watches that they apply to. Before Apply, every query
// is rejected.
type Policies struct {
	mu      sync.Mutex
	set     *policy.Set
	watches map[*restrictedWatch]struct{}
}

// NewPolicies returns Policies before the first Apply.
func NewPolicies() *Policies { return &Policies{watches: map[*restrictedWatch]struct{}{}} }

// Apply replaces the policies for new requests, and ends open watches that they deny.
func (p *Policies) Apply(set *policy.Set) {
	p.mu.Lock()
	p.set = set
	var endings []func()
	for w := range p.watches {
		end := w.end
		if err := deny(set, w.query); err != nil && end != nil {
			endings = append(endings, func() { end(err) })
		}
	}
	p.mu.Unlock()
	for _, end := range endings {
		end()
	}
}

// check returns an error if a query is denied.
func (p *Policies) check(q policy.Query) error {
	p.mu.Lock()
	set := p.set
	p.mu.Unlock()
	if err := deny(set, q); err != nil {
		return err // not a nil of a type
	}
	return nil
}

// restrictedWatch is a watch that a change of policies may end.
type restrictedWatch struct {
	policies *Policies
	query    policy.Query
	// end is guarded by policies.mu; nil until the watch is open.
	end func(*apierrors.StatusError)
}

// addWatch applies changes of policies to a query until release is called.
func (p *Policies) addWatch(q policy.Query) *restrictedWatch {
	w := &restrictedWatch{policies: p, query: q}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches[w] = struct{}{}
	return w
}

// open sets the function that ends the watch, or returns an error if the policies have changed
// since check and now deny it.
func (w *restrictedWatch) open(end func(*apierrors.StatusError)) error {
	w.policies.mu.Lock()
	defer w.policies.mu.Unlock()
	if err := deny(w.policies.set, w.query); err != nil {
		return err
	}
	w.end = end
	return nil
}

func (w *restrictedWatch) release() {
	w.policies.mu.Lock()
	defer w.policies.mu.Unlock()
	delete(w.policies.watches, w)
}

// deny returns the API error of a denied query, or nil.
func deny(set *policy.Set, q policy.Query) *apierrors.StatusError {
	if set == nil {
		err := apierrors.NewServiceUnavailable("the ExternalMetricsPolicies were not read yet, so it is not known whether this may be answered: ask again; " +
			"where it stays so, this server's readiness says why")
		err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return err
	}
	if denial := set.Check(q); denial != nil {
		// In lower case, so that it does not tell whether there is such a metric.
		return apierrors.NewForbidden(external_metrics.Resource(strings.ToLower(query.EscapeName(q.Metric))), "", denial)
	}
	return nil
}
