// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package valueapi installs API groups whose resources are metrics. Each response is a list of
// values, at paths that the installer of the generic API server does not support, and metrics are
// added and removed at run time.
//
// An API group describes itself (API), its paths (Route) and the requests for them (Request).
// What custom and external metrics share is here: routes with their OpenAPI, negotiation, errors,
// dynamic discovery, and watches: their values are in a valuecache.Cache, from which a stream.Hub
// distributes them.
//
// Requests are served by the API server's own handler (handlers.ListResource), so lists and
// watches behave like those of other resources.
package valueapi

import (
	"context"
	"net/url"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuecache"
)

// API describes an API group in all its versions. Objects are of the internal version, which the
// codecs convert.
type API struct {
	// Versions are the versions of one group, the preferred one first.
	Versions []schema.GroupVersion
	Scheme   *runtime.Scheme
	// ListKind is the kind of every response, and ValueKind that of its items.
	ListKind, ValueKind string
	// NewList returns an empty list.
	NewList func() runtime.Object
	// Columns of a Table, before those that Tables of all values have.
	Columns []metav1.TableColumnDefinition
	// Row returns the row of a value, or false if the object is not of ValueKind.
	Row func(value runtime.Object) (Row, bool)
	// Routes are the paths, the same in each version.
	Routes []Route
	// Resources returns the resources for discovery, at most limit, and their total number. Only
	// Name, Namespaced and Kind are set. It is called every few seconds, one call at a time.
	Resources func(limit int) (first []metav1.APIResource, total int)
	// NoMetrics is in discovery while there are no metrics (v1alpha1.NoMetrics). Requests for it get an empty list.
	NoMetrics metav1.APIResource
}

// Group is the name of the API group.
func (a *API) Group() string { return a.Versions[0].Group }

// Route is one path of an API group.
type Route struct {
	// Path below /apis/GROUP/VERSION, with parameters in braces.
	Path string
	// Doc and Operation are for OpenAPI. Operation is unique in the API group and starts with list
	// or watch.
	Doc, Operation string
	// Parameters are those of the path, and those of the query that other lists do not have.
	Parameters []Parameter
	// WatchOnly says that every request is a watch, whatever the query says.
	WatchOnly bool
	// WatchLimit returns the longest duration of a watch, minus a random part of up to a tenth. A
	// nil WatchLimit, or 0, means the usual duration.
	WatchLimit func(info *request.RequestInfo) time.Duration
	// Parse parses a request. It must take the path from info, which is what was authorized.
	Parse func(info *request.RequestInfo, query url.Values) (Request, error)
}

// ShortWatch is the limit of watches that kube-apiserver treats as short requests. It breaks
// their stream after 60 s (--request-timeout); this leaves time for a clean end.
const ShortWatch = 50 * time.Second

// Parameter documents a parameter of a path.
type Parameter struct {
	Name, Doc string
	// Query says that the parameter is in the query and not in the path.
	Query bool
}

// Request is a parsed request. Errors are API statuses, or a
// query.Failure, wrapped or not, which is answered with 503.
type Request interface {
	// List returns the current values.
	List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error)
	// Subscribe returns how a watch gets its values.
	Subscribe(ctx context.Context, options *metainternalversion.ListOptions) (*Subscription, error)
}

// noValues is a request without values, which returns an empty list.
type noValues func() runtime.Object

// List implements Request.
func (r noValues) List(context.Context, *metainternalversion.ListOptions) (runtime.Object, error) {
	return r(), nil
}

// Subscribe implements Request.
func (noValues) Subscribe(context.Context, *metainternalversion.ListOptions) (*Subscription, error) {
	none := func() (query.MetricQuery, error) { return query.MetricQuery{}, nil }
	return &Subscription{Subscription: valuecache.Subscription{ID: v1alpha1.NoMetrics, Read: none}, Release: func() {}}, nil
}

// Subscription says how a watch gets its values.
type Subscription struct {
	valuecache.Subscription
	// What is watched, for errors.
	What string
	// Opened is called once with the watch, which it may revoke until Release. An error ends the
	// watch before anything is sent. It may be nil.
	Opened func(*stream.Watcher) error
	// Release is called once, when the watch has ended or was not opened.
	Release func()
}
