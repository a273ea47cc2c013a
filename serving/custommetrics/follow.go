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
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuecache"
)

// Follow keeps the values up to date for watches. All watches of the same target and
// label selector, in every version, share them.
func (r *targetRequest) Follow(ctx context.Context, options *metainternalversion.ListOptions) (*valueapi.Following, error) {
	f := &followed{targetRequest: r, selector: options.LabelSelector}
	// Here whatever has to wait for kube-apiserver may wait. It is not for nothing where
	// others follow the same already: they want it to be up to date, too.
	first, err := r.resolve(f.selector, r.names(ctx, f.selector))
	if err != nil {
		return nil, err
	}
	f.newest.Store(first)
	id := f.id()
	release, err := r.followed.Follow(ctx, valuecache.Feed{ID: id, Read: f.read, Labels: f.labels, Objects: f.objectNames, Event: f.event})
	if err != nil {
		return nil, fmt.Errorf("watch metric %q of %s: %w", r.metric, r.resource, err)
	}
	return &valueapi.Following{
		Selection:       stream.Selection{Namespace: id},
		ResourceVersion: func() string { return r.followed.ResourceVersion(id) },
		Stop:            release,
	}, nil
}

// followed is a target that is watched.
type followed struct {
	*targetRequest
	selector labels.Selector
	// newest is how the values were read last.
	newest atomic.Pointer[resolved]
}

// id tells apart what has different values, or values that look different.
func (f *followed) id() string {
	var selector, series string
	if f.selector != nil {
		selector = f.selector.String()
	}
	if f.series != nil {
		series = f.series.String()
	}
	// Any of these may hold what would end it, but for the quotation.
	return fmt.Sprintf("%q", []string{f.resource.String(), f.namespace, f.name, f.metric, selector, series})
}

// read says how the values are read now. Objects come, go and change their labels, so
// it is another query from time to time. While no object is selected there is none:
// that for all of them may be a large one.
//
// It waits for nothing, since others wait for it.
func (f *followed) read() (query.MetricQuery, error) {
	resolved, err := f.resolve(f.selector, func(resource schema.GroupVersionResource) ([]string, error) {
		if names, known := f.objects.Known(resource, f.namespace, everythingIfNil(f.selector)); known {
			return names, nil
		}
		return f.newest.Load().names, nil
	})
	if err != nil {
		return query.MetricQuery{}, err
	}
	f.newest.Store(resolved)
	if resolved.empty() {
		return query.MetricQuery{}, nil
	}
	return resolved.metricQuery, nil
}

// labels says whether an object was asked for. Watches do not select any further.
func (f *followed) labels(object string) (map[string]string, bool) {
	return nil, f.newest.Load().wanted(object)
}

// objectNames are those that were asked for.
func (f *followed) objectNames() []string { return f.newest.Load().names }

// event makes the object of an event.
func (f *followed) event(p valuecache.Point) runtime.Object {
	value := f.newest.Load().object(&p.Value, p.Window)
	return &value
}
