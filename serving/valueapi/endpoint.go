// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/emicklei/go-restful/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Resource replaces the resource of requests in metrics and messages of the API server: clients
// choose it, so it is unbounded.
const Resource = "values"

// endpoint serves one route in one version.
type endpoint struct {
	group   *Group
	version schema.GroupVersion
	route   Route
	scope   *handlers.RequestScope
}

func newEndpoint(g *Group, version schema.GroupVersion, route Route) *endpoint {
	return &endpoint{group: g, version: version, route: route, scope: &handlers.RequestScope{
		Namer:            namer{},
		Serializer:       g.codecs,
		ParameterCodec:   runtime.NewParameterCodec(g.api.Scheme),
		Convertor:        g.api.Scheme,
		Defaulter:        g.api.Scheme,
		Typer:            g.api.Scheme,
		UnsafeConvertor:  runtime.UnsafeObjectConvertor(g.api.Scheme),
		TableConvertor:   tableConvertor{g},
		Resource:         version.WithResource(Resource),
		Kind:             version.WithKind(g.api.ListKind),
		MetaGroupVersion: metav1.SchemeGroupVersion,
		HubGroupVersion:  schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal},
	}}
}

// serve implements restful.RouteFunction.
func (e *endpoint) serve(req *restful.Request, resp *restful.Response) {
	if err := e.answer(resp.ResponseWriter, req.Request); err != nil {
		responsewriters.ErrorNegotiated(err, e.group.codecs, e.version, resp.ResponseWriter, req.Request)
	}
}

func (e *endpoint) answer(w http.ResponseWriter, req *http.Request) error {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		return apierrors.NewInternalError(errors.New("the request was not authorized: the API server did not resolve it"))
	}
	query := req.URL.Query()
	if err := checkLengths(query); err != nil {
		return err
	}
	r, err := e.route.Parse(info, query)
	if err != nil {
		return apiError(err)
	}
	explain, err := wantsExplanation(query)
	if err != nil {
		return err
	}
	if explainer, can := r.(Explainer); explain && can && !e.route.WatchOnly && info.Verb != verbWatch {
		return e.explain(w, req, explainer)
	}
	if path.Base(info.Path) == path.Base(e.group.api.NoMetrics.Name) {
		r = noValues(e.group.api.NewList)
	}
	if e.route.WatchOnly || info.Verb == verbWatch {
		if query.Has("sendInitialEvents") {
			return noInitialEvents()
		}
		req = e.limit(req, info, query)
	}
	s := &storage{endpoint: e, request: r, verb: info.Verb}
	handlers.ListResource(s, s, e.scope, e.route.WatchOnly, e.group.minRequestTimeout)(w, bounded(req, info))
	return nil
}

// MaxParameter limits each parameter of a query, in bytes: selectors become part of queries that
// are compared, cached and sent to sources.
const MaxParameter = 4 << 10

// checkLengths rejects parameters that are too long.
func checkLengths(query url.Values) error {
	for name, values := range query {
		for _, value := range values {
			if len(value) > MaxParameter {
				return apierrors.NewBadRequest(fmt.Sprintf("%.64s has %d bytes, and at most %d are possible: select with fewer values", name, len(value), MaxParameter))
			}
		}
	}
	return nil
}

// bounded replaces the client's resource in what the API server uses as labels of its metrics.
func bounded(req *http.Request, info *request.RequestInfo) *http.Request {
	labels := *info
	labels.Resource, labels.Subresource = Resource, ""
	return req.WithContext(request.WithRequestInfo(req.Context(), &labels))
}

// limit limits the timeout of a watch to the route's WatchLimit.
func (e *endpoint) limit(req *http.Request, info *request.RequestInfo, query url.Values) *http.Request {
	var longest time.Duration
	if e.route.WatchLimit != nil {
		longest = e.route.WatchLimit(info)
	}
	if longest == 0 {
		return req
	}
	most := int64((longest - time.Duration(e.group.random()*float64(longest/10))) / time.Second)
	if text := query.Get("timeoutSeconds"); text != "" {
		asked, err := strconv.ParseInt(text, 10, 64)
		if err != nil || (asked > 0 && asked <= most) {
			return req // the handler rejects what is not a number
		}
	}
	query.Set("timeoutSeconds", strconv.FormatInt(most, 10))
	limited := *req.URL
	limited.RawQuery = query.Encode()
	req = req.WithContext(req.Context())
	req.URL = &limited
	return req
}

// storage serves one request to the API server's handler.
type storage struct {
	*endpoint
	request Request
	verb    string
}

var (
	_ rest.Lister  = &storage{}
	_ rest.Watcher = &storage{}
)

// NewList implements rest.Lister.
func (s *storage) NewList() runtime.Object { return s.group.api.NewList() }

// List implements rest.Lister.
func (s *storage) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if err := checkOptions(options); err != nil {
		return nil, err
	}
	list, err := s.request.List(ctx, options)
	return list, apiError(err)
}

// Watch implements rest.Watcher.
func (s *storage) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if s.verb != verbWatch {
		return nil, apierrors.NewInternalError(errors.New("a watch was authorized as " + s.verb + ": the API server lacks NewRequestInfoResolver"))
	}
	if err := checkOptions(options); err != nil {
		return nil, err
	}
	return s.group.watch(ctx, s.version, options, s.request)
}

// ConvertToTable implements rest.Lister.
func (s *storage) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	return s.scope.TableConvertor.ConvertToTable(ctx, object, tableOptions)
}

// checkOptions rejects options that would be ignored. A limit is allowed: responses may exceed it
// and are never long enough for pages.
func checkOptions(options *metainternalversion.ListOptions) error {
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		return apierrors.NewBadRequest("values of metrics have no fields to select by: leave out fieldSelector")
	}
	if options.Continue != "" {
		return apierrors.NewBadRequest("a list of values has one page: leave out continue")
	}
	return nil
}

// namer returns the namespace of a request. It never returns a name, which would become a field
// selector.
type namer struct{ handlers.ContextBasedNaming }

// Name implements handlers.ScopeNamer.
func (namer) Name(*http.Request) (namespace, name string, err error) {
	return "", "", errors.New("values have no name")
}

// apiError returns the API status of an error. That of another implementation is passed on. Else a failing source is a 503, whatever its own status
// was: its 404 or 403 does not concern this client. The source's text is kept. There is no
// Retry-After, since client-go would retry ten times before an autoscaler saw the error.
func apiError(err error) error {
	var status apierrors.APIStatus
	var failure *query.Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failure) && failure.Status != nil:
		return &apierrors.StatusError{ErrStatus: *failure.Status}
	case errors.As(err, &status):
		// What is around it the API server does not look into.
		told := status.Status()
		told.Message = err.Error()
		return &apierrors.StatusError{ErrStatus: told}
	case errors.As(err, &failure):
		return apierrors.NewServiceUnavailable(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError(err.Error(), 0)
	}
	return apierrors.NewInternalError(err)
}
