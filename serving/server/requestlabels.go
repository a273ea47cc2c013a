// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// boundRequestLabels keeps names that clients choose out of the API server's counters of
// requests, which would keep a series of each. The filters that turn a request away, run
// out of time for it or break it off count it by what its path says, before anyone has
// authorized it. All that is not served is counted as "unexpected" (component-base). It
// must come before the first request.
func boundRequestLabels() {
	groups, versions := sets.New("", "config.k8s.io"), sets.New("", "v1alpha1", "v1beta1") // the latter two of /statusz and /flagz
	for _, version := range compiledVersions() {
		groups.Insert(version.Group)
		versions.Insert(version.Version)
	}
	allowed := map[string]sets.Set[string]{
		"group":    groups,
		"version":  versions,
		"resource": sets.New("", "nodes", "pods", valueapi.Resource, "statusz", "flagz"),
		// Paths that are no resources are counted as subresources.
		"subresource": sets.New("", "/apis", "/healthz", "/livez", "/readyz"),
	}
	lists := map[string]string{}
	for _, metric := range []string{"apiserver_request_total", "apiserver_request_terminations_total", "apiserver_request_aborts_total"} {
		for label, values := range allowed {
			lists[metric+","+label] = strings.Join(sets.List(values), ",")
		}
	}
	metrics.SetLabelAllowList(lists)
}
