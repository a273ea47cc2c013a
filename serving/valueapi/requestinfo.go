// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// verbWatch is what a watch is authorized as.
const verbWatch = "watch"

// requestInfo calls a watch a watch.
type requestInfo struct {
	request.RequestInfoResolver
	groups []string
}

// NewRequestInfoResolver returns a resolver for which ?watch=true is the verb watch
// on every path of the API groups. The API server's own goes by the query only where
// a path has no name, and these have one (of an object, or of a metric): whoever may
// get a metric could open streams of it, and a stream would count as a short request,
// with a timeout of a minute.
//
// It has no say in kube-apiserver, which authorizes a request as get before it
// proxies it to here.
func NewRequestInfoResolver(of request.RequestInfoResolver, groups ...string) request.RequestInfoResolver {
	return &requestInfo{RequestInfoResolver: of, groups: groups}
}

// NewRequestInfo implements request.RequestInfoResolver.
func (r *requestInfo) NewRequestInfo(req *http.Request) (*request.RequestInfo, error) {
	info, err := r.RequestInfoResolver.NewRequestInfo(req)
	if err != nil || !info.IsResourceRequest || info.Verb != "get" || !slices.Contains(r.groups, info.APIGroup) {
		return info, err
	}
	if isWatch(req.URL.Query()) {
		info.Verb = verbWatch
	}
	return info, nil
}

// isWatch reports whether a query asks for a watch, as handlers.ListResource reads it. One that it refuses to read
// is a watch if it may be meant as one, as in RequestInfoFactory.
func isWatch(query url.Values) bool {
	if !query.Has("watch") {
		return false
	}
	var options metainternalversion.ListOptions
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &options); err != nil {
		value := strings.ToLower(query.Get("watch"))
		return value != "false" && value != "0"
	}
	return options.Watch
}
