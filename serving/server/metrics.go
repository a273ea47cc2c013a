// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricset"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/readiness"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuecache"
)

// newestSamplePeriod is the interval in which newestSample is updated; samples renew every
// 10 to 20 seconds.
const newestSamplePeriod = 5 * time.Second

var (
	metricSet = metricset.New("metrics_backend_")

	invalidPolicies = metricSet.Gauge("external_metrics_invalid_policies",
		"Number of ExternalMetricsPolicies of which some rule or subject cannot be used; they deny what they may have been meant for.")

	newestSample = metricSet.Gauge("store_newest_node_sample_timestamp_seconds",
		"Time in seconds since 1970 of the newest node sample that was read from any kubelet; 0 when there is none.")
)

// registerMetrics registers the metrics with the process's registry, which /metrics serves
// beside the request metrics.
var registerMetrics = sync.OnceFunc(func() {
	limitRequestLabels()
	RegisterMetrics(legacyregistry.MustRegister)
})

// RegisterMetrics registers the metrics of this package and of those below it.
func RegisterMetrics(register func(...metrics.Registerable)) {
	for _, set := range []*metricset.Set{
		metricSet, config.MetricSet, readiness.MetricSet, kubelet.MetricSet, stream.MetricSet, resourcemetrics.MetricSet,
		query.MetricSet, valuecache.MetricSet, valueapi.MetricSet,
	} {
		set.Register(register)
	}
}

// updateNewestSample keeps newestSample up to date until the context ends. Readiness does
// not depend on it: a pod that has lost its kubelets stays ready, see readiness.Gates.
func updateNewestSample(ctx context.Context, c clock.Clock, report func() v1alpha1.KubeletReport) {
	wake.Every(ctx, c, newestSamplePeriod, func() {
		if newest := report().NewestSample; newest.IsZero() {
			newestSample.Set(0)
		} else {
			newestSample.Set(float64(newest.UnixMilli()) / 1000)
		}
	})
}

// limitRequestLabels restricts the labels of the API server's request counters to what is
// served; component-base counts everything else as "unexpected". Requests that are rejected,
// time out or are aborted before authorization are counted by their path, so clients could
// otherwise create series without limit. It must be called before the first request.
func limitRequestLabels() {
	groups := sets.New("", "config.k8s.io", v1alpha1.CanaryGroup)
	versions := sets.New("", "v1alpha1", "v1beta1") // those of /statusz, /flagz and the canary API
	for _, version := range compiledVersions() {
		groups.Insert(version.Group)
		versions.Insert(version.Version)
	}
	allowed := map[string]sets.Set[string]{
		"group":    groups,
		"version":  versions,
		"resource": sets.New("", "nodes", "pods", valueapi.Resource, v1alpha1.CanaryResource, "statusz", "flagz"),
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
