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
	// discoveryInterval is how often discovery follows the metrics that there are. All
	// that came and went in between is one change: every client of the cluster reads
	// discovery again after each, through kube-apiserver, which looks once a minute.
	discoveryInterval = 5 * time.Second
	// MaxDiscovered is how many metrics discovery tells of at most. The document goes to
	// every client that looks for any resource: this many are 200 kB in each version.
	// The others can be read like these.
	MaxDiscovered = 2000
)

// refresh follows the metrics.
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

// document is what discovery tells of at a time.
type document struct {
	// listed is what the API group said, and found how many there are.
	listed []metav1.APIResource
	found  int
	// resources are those that are told of, without verbs.
	resources []metav1.APIResource
}

// look returns what discovery is to tell of now, and whether that is something else than
// it tells of. The caller holds mu.
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

// Told makes what discovery tells of metrics, anew only where there are others: most of
// the time nothing has changed. The zero value is ready.
type Told[M any] struct {
	metrics   []M
	resources []metav1.APIResource
}

// Resources returns what each metric of a shared slice is told as.
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

// sameSlice says whether two slices that are never written are one.
func sameSlice[E any](a, b []E) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// oneScopeEach leaves out metrics of a resource that is said to have a namespace where
// the first metric of it is said to have none, or the other way round: the document
// cannot tell of both, and would not be made at all.
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

// advertise tells of metrics in both documents of discovery, which stay as they were if
// it fails. The caller holds mu.
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

// mustAdvertise is advertise where nobody takes an error: the metrics can be read
// whatever discovery tells, and it is tried again. An error is logged once for as long
// as it is the same.
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
