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
)

const (
	// discoveryInterval is how often discovery is updated. Changes in between are one update, since
	// every client of the cluster reads discovery again after each, through kube-apiserver, which
	// polls once a minute.
	discoveryInterval = 5 * time.Second
	// MaxDiscovered limits the metrics in discovery. Every client that looks up any resource gets
	// the document; this many take 200 kB per version. The others can be read, too.
	MaxDiscovered = 2000
)

// refresh updates discovery when the metrics change.
func (g *Group) refresh(ctx context.Context) {
	ticker := g.clock.NewTicker(discoveryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		g.mu.Lock()
		if next, changed := g.look(); changed {
			g.mustAdvertise(klog.FromContext(ctx), next)
		}
		g.mu.Unlock()
	}
}

// document is the content of discovery.
type document struct {
	// listed is what API.Resources returned, and found the total number.
	listed []metav1.APIResource
	found  int
	// resources are in discovery, without verbs.
	resources []metav1.APIResource
}

// look returns the wanted content of discovery, and whether it differs from the current one. The
// caller holds mu.
func (g *Group) look() (next document, changed bool) {
	next.listed, next.found = g.api.Resources(MaxDiscovered)
	next.resources = g.told.resources
	if !sameSlice(next.listed, g.told.listed) {
		next.resources = oneScopeEach(next.listed)
	}
	discovered.WithLabelValues(g.api.Group()).Set(float64(len(next.resources)))
	undiscovered.WithLabelValues(g.api.Group()).Set(float64(next.found - len(next.resources)))
	changed = next.found != g.told.found || !slices.EqualFunc(next.resources, g.told.resources, func(a, b metav1.APIResource) bool {
		return a.Name == b.Name && a.Namespaced == b.Namespaced && a.Kind == b.Kind
	})
	if !changed {
		g.told = next
	}
	return next, changed
}

// Told caches the conversion of metrics to resources, since most of the time nothing has changed.
// The zero value is ready to use.
type Told[M any] struct {
	metrics   []M
	resources []metav1.APIResource
}

// Resources converts the metrics of a shared slice.
func (t *Told[M]) Resources(metrics []M, as func(*M) metav1.APIResource) []metav1.APIResource {
	if sameSlice(metrics, t.metrics) {
		return t.resources
	}
	t.metrics, t.resources = metrics, make([]metav1.APIResource, len(metrics))
	for i := range metrics {
		t.resources[i] = as(&metrics[i])
	}
	return t.resources
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
	resources := make([]metav1.APIResource, len(d.resources))
	for i, r := range d.resources {
		r.Verbs = verbs
		resources[i] = r
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
	g.told = d
	return nil
}

// mustAdvertise is advertise with errors logged, each once while it is the same. It is retried,
// and the metrics can be read anyway.
func (g *Group) mustAdvertise(logger klog.Logger, d document) {
	if err := g.advertise(d); err != nil {
		if err.Error() != g.untold {
			g.untold = err.Error()
			logger.Error(err, "Discovery stays as it was", "group", g.api.Group())
		}
		return
	}
	g.untold = ""
	if omitted := d.found - len(d.resources); omitted > 0 {
		logger.Info("Discovery tells of the first metrics only; the others can be read all the same",
			"group", g.api.Group(), "told", len(d.resources), "omitted", omitted)
	}
}
