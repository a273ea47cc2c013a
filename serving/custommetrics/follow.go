// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/answers"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuelist"
)

// Follow keeps the values up to date for watches. All watches of the same target and
// label selector, in every version, share them.
func (r *targetRequest) Follow(ctx context.Context, options *metainternalversion.ListOptions) (*valuelist.Following, error) {
	f := &followed{targetRequest: r, selector: options.LabelSelector}
	id := f.id()
	// Not of this request alone: others may follow the same after it has ended.
	f.base = context.WithoutCancel(ctx)
	release, err := r.followed.Follow(ctx, answers.Feed{ID: id, Read: f.read, Labels: f.labels, Event: f.event})
	if err != nil {
		return nil, fmt.Errorf("watch metric %q of %s: %w", r.metric, r.resource, err)
	}
	return &valuelist.Following{
		Selection:       stream.Selection{Namespace: id},
		ResourceVersion: func() string { return r.followed.ResourceVersion(id) },
		Stop:            release,
	}, nil
}

// followed is a target that is watched.
type followed struct {
	*targetRequest
	base     context.Context
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
// it is another question from time to time. While no object is selected the question
// is that for all of them, so that there is one to follow; none of its values counts.
func (f *followed) read() (query.Reading, error) {
	resolved, err := f.resolve(f.base, f.selector)
	if before := f.newest.Load(); before != nil && apierrors.IsServiceUnavailable(err) {
		// kube-apiserver does not tell which objects there are: the same as before.
		return before.reading, nil
	}
	if err != nil {
		return query.Reading{}, err
	}
	f.newest.Store(resolved)
	return resolved.reading, nil
}

// labels says whether an object was asked for. Watches do not select any further.
func (f *followed) labels(object string) (map[string]string, bool) {
	resolved := f.newest.Load()
	return nil, resolved != nil && resolved.wanted(object)
}

// event makes the object of an event.
func (f *followed) event(p answers.Point) runtime.Object {
	value := f.newest.Load().object(&p.Value, p.Window)
	return &value
}
