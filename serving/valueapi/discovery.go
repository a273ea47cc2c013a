// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
)

const (
	// discoveryInterval is how often discovery is updated. Changes in between are one update, since
	// every client of the cluster reads discovery again after each, through kube-apiserver, which
	// polls once a minute.
	discoveryInterval = 5 * time.Second
	// MaxDiscovered limits the metrics in discovery. Every client that looks up any resource gets
	// the document; this many take at most 1 MiB in all versions of all groups, as a long name
	// counts as several. The others can be read, too.
	MaxDiscovered = 2000
)

// updateDiscovery updates discovery when the metrics change, until the context ends.
func (g *Group) updateDiscovery(ctx context.Context) {
	wake.Every(ctx, g.clock, discoveryInterval, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if next, changed := g.nextDocument(); changed {
			g.advertiseOrLog(klog.FromContext(ctx), next)
		}
	})
}

// document is the content of discovery.
type document struct {
	// listed and total are what API.Resources returned.
	listed []metav1.APIResource
	total  int
	// resources are in discovery, without verbs.
	resources []metav1.APIResource
}

// nextDocument returns the wanted content of discovery, and whether it differs from the current one. The
// caller holds mu.
func (g *Group) nextDocument() (next document, changed bool) {
	next.listed, next.total = g.api.Resources(MaxDiscovered)
	next.resources = g.current.resources
	if !sameSlice(next.listed, g.current.listed) {
		next.resources = oneScopeEach(next.listed)
	}
	discovered.WithLabelValues(g.api.Group()).Set(float64(len(next.resources)))
	undiscovered.WithLabelValues(g.api.Group()).Set(float64(next.total - len(next.resources)))
	changed = next.total != g.current.total || !slices.EqualFunc(next.resources, g.current.resources, func(a, b metav1.APIResource) bool {
		return a.Name == b.Name && a.Namespaced == b.Namespaced && a.Kind == b.Kind
	})
	if !changed {
		g.current = next
	}
	return next, changed
}

// CachedResources returns an API's Resources. list returns the first metrics, in an immutable
// slice, and their total number. They are converted only when the slice is another one.
func CachedResources[M any](list func(limit int) ([]M, int), convert func(*M) metav1.APIResource) func(limit int) ([]metav1.APIResource, int) {
	var converted []M
	var resources []metav1.APIResource
	return func(limit int) ([]metav1.APIResource, int) {
		metrics, total := list(limit)
		if !sameSlice(metrics, converted) {
			converted, resources = metrics, make([]metav1.APIResource, len(metrics))
			for i := range metrics {
				resources[i] = convert(&metrics[i])
			}
		}
		return resources, total
	}
}

// sameSlice reports whether two immutable slices share their array.
func sameSlice[E any](a, b []E) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// oneScopeEach removes metrics of a resource whose scope differs from that of its first metric:
// the discovery document cannot have both, and its conversion would fail.
func oneScopeEach(all []metav1.APIResource) []metav1.APIResource {
	namespaced := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(all), func(r metav1.APIResource) bool {
		parent, _, _ := strings.Cut(r.Name, "/")
		first, known := namespaced[parent]
		if !known {
			namespaced[parent] = r.Namespaced
		}
		return known && first != r.Namespaced
	})
}

// advertise writes both discovery documents, which do not change if it fails. The caller holds mu.
func (g *Group) advertise(d document) error {
	verbs := metav1.Verbs{"get"}
	if g.watchable {
		verbs = append(verbs, verbWatch)
	}
	resources := slices.Clone(d.resources)
	if len(resources) == 0 {
		resources = []metav1.APIResource{g.api.NoMetrics}
	}
	for i := range resources {
		resources[i].Verbs = verbs
	}
	converted, err := endpoints.ConvertGroupVersionIntoToDiscovery(resources)
	if err != nil {
		return fmt.Errorf("tell of %s in discovery: %w", g.api.Group(), err)
	}
	g.resources.Store(&resources)
	for _, version := range g.api.Versions {
		g.aggregated.AddGroupVersion(version.Group, apidiscoveryv2.APIVersionDiscovery{
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Version: version.Version, Resources: converted,
		})
	}
	g.current = d
	return nil
}

// advertiseOrLog is advertise with errors logged, each once while it is the same. It is retried,
// and the metrics can be read anyway.
func (g *Group) advertiseOrLog(logger klog.Logger, d document) {
	if err := g.advertise(d); err != nil {
		if err.Error() != g.lastError {
			g.lastError = err.Error()
			logger.Error(err, "Discovery stays as it was", "group", g.api.Group())
		}
		return
	}
	g.lastError = ""
	if omitted := d.total - len(d.resources); omitted > 0 {
		logger.Info("Discovery omits metrics, which can be read all the same",
			"group", g.api.Group(), "listed", len(d.resources), "omitted", omitted)
	}
}
