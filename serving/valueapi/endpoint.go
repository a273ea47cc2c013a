// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
)

// Resource stands for all resources of an API group where a metric or a message of the
// API server names one: those of requests are chosen by clients, and are not bounded.
const Resource = "values"

// endpoint answers the requests for one route in one version.
type endpoint struct {
	group   *Group
	version schema.GroupVersion
	route   Route
	scope   *handlers.RequestScope
}

func newEndpoint(g *Group, version schema.GroupVersion, route Route) *endpoint {
	return &endpoint{group: g, version: version, route: route, scope: &handlers.RequestScope{
		Namer:            namer{},
		Serializer:       g.api.Codecs,
		ParameterCodec:   runtime.NewParameterCodec(g.api.Scheme),
		Convertor:        g.api.Scheme,
		Defaulter:        g.api.Scheme,
		Typer:            g.api.Scheme,
		UnsafeConvertor:  runtime.UnsafeObjectConvertor(g.api.Scheme),
		TableConvertor:   table{&g.api},
		Resource:         version.WithResource(Resource),
		Kind:             version.WithKind(g.api.ListKind),
		MetaGroupVersion: metav1.SchemeGroupVersion,
		HubGroupVersion:  schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal},
	}}
}

// serve implements restful.RouteFunction.
func (e *endpoint) serve(req *restful.Request, resp *restful.Response) {
	if err := e.answer(resp.ResponseWriter, req.Request); err != nil {
		responsewriters.ErrorNegotiated(err, e.group.api.Codecs, e.version, resp.ResponseWriter, req.Request)
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
	explain, err := asksToExplain(query)
	if err != nil {
		return err
	}
	if explainer, can := r.(Explainer); explain && can && !e.route.WatchOnly && info.Verb != verbWatch {
		return e.explain(w, req, explainer)
	}
	if e.route.WatchOnly || info.Verb == verbWatch {
		if query.Has("sendInitialEvents") {
			return noInitialEvents()
		}
		req = e.limit(req, info, query)
	}
	answering := &answering{endpoint: e, request: r, verb: info.Verb}
	handlers.ListResource(answering, answering, e.scope, e.route.WatchOnly, e.group.minRequestTimeout)(w, bounded(req, info))
	return nil
}

// MaxParameter is the most bytes of a parameter in a query, selectors first of all: they
// become part of questions, which are compared, kept and sent to sources.
const MaxParameter = 4 << 10

// checkLengths refuses parameters that no client needs.
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

// bounded replaces what the client named in what the API server makes labels of its
// metrics from.
func bounded(req *http.Request, info *request.RequestInfo) *http.Request {
	labels := *info
	labels.Resource, labels.Subresource = Resource, ""
	return req.WithContext(request.WithRequestInfo(req.Context(), &labels))
}

// limit keeps a watch from lasting longer than it may at this path.
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
			return req // what is no number is refused by who reads it
		}
	}
	query.Set("timeoutSeconds", strconv.FormatInt(most, 10))
	limited := *req.URL
	limited.RawQuery = query.Encode()
	req = req.WithContext(req.Context())
	req.URL = &limited
	return req
}

// answering is one request as the API server's handlers see a storage.
type answering struct {
	*endpoint
	request Request
	verb    string
}

var (
	_ rest.Lister  = &answering{}
	_ rest.Watcher = &answering{}
)

// NewList implements rest.Lister.
func (a *answering) NewList() runtime.Object { return a.group.api.NewList() }

// List implements rest.Lister.
func (a *answering) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if err := checkOptions(options); err != nil {
		return nil, err
	}
	list, err := a.request.List(ctx, options)
	return list, apiError(err)
}

// Watch implements rest.Watcher.
func (a *answering) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	if a.verb != verbWatch {
		return nil, apierrors.NewInternalError(errors.New("a watch was authorized as " + a.verb + ": the API server lacks NewRequestInfoResolver"))
	}
	if err := checkOptions(options); err != nil {
		return nil, err
	}
	return a.group.watch(ctx, a.version, options, a.request)
}

// ConvertToTable implements rest.Lister.
func (a *answering) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	return a.scope.TableConvertor.ConvertToTable(ctx, object, tableOptions)
}

// checkOptions refuses what would otherwise be silently ignored. A limit is not among
// that: an answer may be longer, and is never so long that it needs pages.
func checkOptions(options *metainternalversion.ListOptions) error {
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		return apierrors.NewBadRequest("values of metrics have no fields to select by: leave out fieldSelector")
	}
	if options.Continue != "" {
		return apierrors.NewBadRequest("a list of values has one page: leave out continue")
	}
	return nil
}

// namer reads the namespace of a request. There is never the name of one object of
// metadata: that would become a field selector.
type namer struct{}

// Namespace implements handlers.ScopeNamer.
func (namer) Namespace(req *http.Request) (string, error) {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		return "", errors.New("the request has no info")
	}
	return info.Namespace, nil
}

// Name implements handlers.ScopeNamer.
func (namer) Name(*http.Request) (namespace, name string, err error) {
	return "", "", errors.New("values have no name")
}

// ObjectName implements handlers.ScopeNamer.
func (namer) ObjectName(runtime.Object) (namespace, name string, err error) {
	return "", "", errors.New("values have no name")
}

// table converts objects to Tables.
type table struct{ api *API }

// ConvertToTable implements rest.TableConvertor.
func (t table) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	options, _ := tableOptions.(*metav1.TableOptions)
	if options == nil {
		options = &metav1.TableOptions{}
	}
	if options.IncludeObject == metav1.IncludeObject {
		return nil, apierrors.NewBadRequest("rows of metric values hold no objects: leave out includeObject=Object")
	}
	return t.api.Table(ctx, object, options)
}
