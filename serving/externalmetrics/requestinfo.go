// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// requestInfo names the metric as the resource, whatever it is called.
type requestInfo struct{ request.RequestInfoResolver }

// NewRequestInfoResolver returns a resolver for which the last segment of
// …/namespaces/NAMESPACE/METRIC is the resource. The API server's own takes `status`
// and `finalize` there for parts of the Namespace, and would have a role for the
// resource `namespaces` decide about a metric. The verb is list, or watch where the
// resolver underneath says so.
//
// It has no say in kube-apiserver, which authorizes these two names as `get` of
// `namespaces/status` and `namespaces/finalize` before it proxies them to here.
func NewRequestInfoResolver(of request.RequestInfoResolver) request.RequestInfoResolver {
	return &requestInfo{of}
}

// NewRequestInfo implements request.RequestInfoResolver.
func (r *requestInfo) NewRequestInfo(req *http.Request) (*request.RequestInfo, error) {
	info, err := r.RequestInfoResolver.NewRequestInfo(req)
	if err != nil || !info.IsResourceRequest || info.APIGroup != GroupName || info.Resource != "namespaces" {
		return info, err
	}
	// Only those two names make a part of the Namespace; with a part more it is
	// another path, which nothing answers.
	if info.Subresource == "" || len(info.Parts) != 3 {
		return info, nil
	}
	metric := *info
	metric.Resource, metric.Subresource, metric.Name = info.Subresource, "", ""
	metric.Parts = []string{metric.Resource}
	switch info.Verb {
	case "get":
		metric.Verb = "list"
	case "delete":
		metric.Verb = "deletecollection"
	}
	// As for any other list.
	query := req.URL.Query()
	metric.LabelSelector, metric.FieldSelector = query.Get("labelSelector"), query.Get("fieldSelector")
	return &metric, nil
}

// watchLimit ends watches of metrics with those two names before kube-apiserver does: a
// `get` is a short request to it, whatever the query says.
func watchLimit(info *request.RequestInfo) time.Duration {
	if info.Resource == "status" || info.Resource == "finalize" {
		return valueapi.ShortWatch
	}
	return 0
}
