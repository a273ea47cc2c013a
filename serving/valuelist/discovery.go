// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuelist

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
		if g.look() {
			g.mustAdvertise(klog.FromContext(ctx))
		}
		g.mu.Unlock()
	}
}

// look returns whether what discovery is to tell of has changed. The caller holds mu.
func (g *Group) look() (changed bool) {
	listed, found := g.api.Resources(MaxDiscovered)
	all := g.told
	if !sameSlice(listed, g.listed) {
		all = oneScopeEach(listed)
	}
	g.listed = listed
	discovered.WithLabelValues(g.api.Group()).Set(float64(len(all)))
	undiscovered.WithLabelValues(g.api.Group()).Set(float64(found - len(all)))
	changed = found != g.found || !slices.EqualFunc(all, g.told, func(a, b metav1.APIResource) bool {
		return a.Name == b.Name && a.Namespaced == b.Namespaced && a.Kind == b.Kind
	})
	g.told, g.found = all, found
	return changed
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

// advertise tells of the metrics in both documents of discovery. The caller holds mu.
func (g *Group) advertise() error {
	verbs := metav1.Verbs{"get"}
	if g.streams.serve.Load() {
		verbs = append(verbs, verbWatch)
	}
	resources := make([]metav1.APIResource, len(g.told))
	for i, r := range g.told {
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
	return nil
}

// mustAdvertise is advertise where nobody takes an error: the metrics can be read
// whatever discovery tells.
func (g *Group) mustAdvertise(logger klog.Logger) {
	if err := g.advertise(); err != nil {
		logger.Error(err, "Discovery stays as it was", "group", g.api.Group())
		return
	}
	if omitted := g.found - len(g.told); omitted > 0 {
		logger.Info("Discovery tells of the first metrics only; the others can be read all the same",
			"group", g.api.Group(), "told", len(g.told), "omitted", omitted)
	}
}
