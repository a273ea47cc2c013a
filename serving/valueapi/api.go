// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package valueapi serves API groups whose resources are metrics: each answer is
// a list of values, at paths that the installer of the generic API server does not
// know, of metrics that come and go while the process runs.
//
// An API group says what it is (API), what its paths are (Route) and what a request
// for one of them asks for (Request). The rest is the same for custom and external
// metrics and is here: routes with their OpenAPI, negotiation, errors, discovery
// that follows the metrics, and watches on a stream.Hub.
//
// The API server's own handlers do the talking (handlers.ListResource), so lists and
// watches are what clients know from other resources.
package valueapi

import (
	"context"
	"net/url"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// API is what an API group is, in all its versions. Objects are of the internal
// version: the codecs convert them where they were asked to.
type API struct {
	// Versions that are served, the preferred one first, all of one group.
	Versions []schema.GroupVersion
	Scheme   *runtime.Scheme
	Codecs   serializer.CodecFactory
	// ListKind is the kind of every answer, and ValueKind that of its items.
	ListKind, ValueKind string
	// NewList makes an empty list.
	NewList func() runtime.Object
	// Table converts lists and single values.
	Table func(ctx context.Context, object runtime.Object, options *metav1.TableOptions) (*metav1.Table, error)
	// Routes are the paths, the same in each version.
	Routes []Route
	// Resources returns what discovery tells of now, at most so many, and how many there
	// are. They are without verbs: Name, Namespaced and Kind are set. It is called every
	// few seconds, never twice at a time; see Told.
	Resources func(most int) (first []metav1.APIResource, total int)
}

// Group is the name of the API group.
func (a *API) Group() string { return a.Versions[0].Group }

// Route is one path of an API group.
type Route struct {
	// Path below /apis/GROUP/VERSION, with parameters in braces.
	Path string
	// Doc is what the path answers, for OpenAPI, and Operation its name there, unique
	// in the API group. It begins with list or watch.
	Doc, Operation string
	// Parameters documents those in the path, and those in the query that the API
	// server's lists do not have.
	Parameters []Parameter
	// WatchOnly says that the path is of watches, whatever the query says.
	WatchOnly bool
	// WatchLimit returns the longest that a watch lasts here, less up to a tenth by
	// chance; 0 for as long as elsewhere, which a nil WatchLimit stands for, too.
	WatchLimit func(info *request.RequestInfo) time.Duration
	// Parse says what a request for the path asks for. info is what was authorized,
	// so nothing else of the path may be looked at.
	Parse func(info *request.RequestInfo, query url.Values) (Request, error)
}

// ShortWatch is the limit of watches that kube-apiserver takes for short requests: after
// 60 s (--request-timeout) it breaks the stream. This leaves room for a clean end, and
// for the way there.
const ShortWatch = 50 * time.Second

// Parameter documents a parameter of a path.
type Parameter struct {
	Name, Doc string
	// Query says that it is in the query and not in the path.
	Query bool
}

// Request is what one request asks for. Errors are apimachinery's own, or a
// query.Failure, wrapped or not, which is answered with 503.
type Request interface {
	// List returns the values as they are now.
	List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error)
	// Subscribe keeps the values up to date in the source of the API group's hub.
	// It returns when those that there are now are in it.
	Subscribe(ctx context.Context, options *metainternalversion.ListOptions) (*Subscription, error)
}

// Subscription is a request whose values are kept up to date.
type Subscription struct {
	// Selection selects the values in the hub's source.
	Selection stream.Selection
	// ResourceVersion is that of a list of the values as they are now.
	ResourceVersion func() string
	// Opened is called once with the watch, which it may keep until Stop to revoke it;
	// an error ends it before anything was sent. It may be nil.
	Opened func(*stream.Watcher) error
	// Stop ends it; it is called once.
	Stop func()
}
