// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"context"
	"fmt"
	"sync/atomic"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuecache"
)

// Subscribe implements valueapi.Request. All watches of the same target and label selector share
// the values, in every version.
func (r *targetRequest) Subscribe(ctx context.Context, options *metainternalversion.ListOptions) (*valueapi.Subscription, error) {
	s := &subscription{targetRequest: r, selector: options.LabelSelector}
	// This may wait for kube-apiserver, which read may not. It also updates a subscription that
	// other watches share.
	first, err := r.resolve(query.ObjectRequest{Objects: s.selector, Watch: true}, r.names(ctx, s.selector))
	if err != nil {
		return nil, err
	}
	s.newest.Store(first)
	return &valueapi.Subscription{
		Subscription: valuecache.Subscription{ID: s.id(), Read: s.read, Labels: s.labels, Objects: s.objectNames, Event: s.event},
		What:         fmt.Sprintf("metric %q of %s", r.metric, r.resource),
		Release:      func() {},
	}, nil
}

// subscription is a watched target.
type subscription struct {
	*targetRequest
	selector labels.Selector
	// newest is the last result of read.
	newest atomic.Pointer[resolved]
}

// id returns a string that is equal only for equal values in an equal form.
func (s *subscription) id() string {
	var selector, series string
	if s.selector != nil {
		selector = s.selector.String()
	}
	if s.series != nil {
		series = s.series.String()
	}
	// Quoted, since any of these may contain a separator.
	return fmt.Sprintf("%q", []string{s.resource.String(), s.namespace, s.name, s.metric, selector, series})
}

// read says how the values are read now. Objects come, go and change their labels, so
// it is another query from time to time. While no object is selected there is none:
// that for all of them may be a large one.
//
// It waits for nothing, since others wait for it.
func (s *subscription) read() (query.MetricQuery, error) {
	resolved, err := s.resolve(query.ObjectRequest{Objects: s.selector, Watch: true}, func(resource schema.GroupVersionResource) ([]string, error) {
		if names, known := s.objects.Known(resource, s.namespace, everythingIfNil(s.selector)); known {
			return names, nil
		}
		return s.newest.Load().names, nil
	})
	if err != nil {
		return query.MetricQuery{}, err
	}
	s.newest.Store(resolved)
	if resolved.empty() {
		return query.MetricQuery{}, nil
	}
	return resolved.metricQuery, nil
}

// labels reports whether an object is selected. Watches do not select any further.
func (s *subscription) labels(object string) (map[string]string, bool) {
	return nil, s.newest.Load().wanted(object)
}

// objectNames returns the names of the selected objects.
func (s *subscription) objectNames() []string { return s.newest.Load().names }

// event returns the object of an event.
func (s *subscription) event(p valuecache.Point) runtime.Object {
	return new(s.newest.Load().object(&p.Value, p.Window))
}
