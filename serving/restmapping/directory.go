// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package restmapping

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
)

const (
	// refreshInterval is the time between two refreshes that find what was installed since.
	refreshInterval = time.Minute
	// minRefreshInterval is the least time between two refreshes, however often RefreshSoon is
	// called.
	minRefreshInterval = 5 * time.Second
)

// Discovery is implemented by client-go's discovery clients. It must not cache.
type Discovery interface {
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
	WithLegacyWithContext(ctx context.Context) discovery.DiscoveryInterfaceWithContext
}

// Directory keeps a Mapper up to date. client-go's deferred mapper never refreshes a name that
// it has found once, and controller-runtime's lazy one needs the group, which labels lack.
type Directory struct {
	discovery Discovery
	clock     clock.WithTicker
	current   atomic.Pointer[Mapper]
	refresh   wake.Signal

	mu       sync.Mutex
	groups   []*metav1.APIGroup
	lists    map[string]*metav1.APIResourceList
	onChange []func(*Mapper)
}

// NewDirectory returns a directory whose Mapper is empty until Run or Refresh.
func NewDirectory(d Discovery, c clock.WithTicker) *Directory {
	dir := &Directory{discovery: d, clock: c, refresh: wake.NewSignal()}
	dir.current.Store(&Mapper{})
	return dir
}

// Current returns the newest Mapper, never nil.
func (d *Directory) Current() *Mapper { return d.current.Load() }

// Find is Find of the newest Mapper. If the resource is unknown, a refresh follows soon.
func (d *Directory) Find(gr schema.GroupResource) (Resource, bool) {
	r, ok := d.Current().Find(gr)
	if !ok {
		d.RefreshSoon()
	}
	return r, ok
}

// RefreshSoon requests a refresh, for a name that is unknown. It does not block.
func (d *Directory) RefreshSoon() { d.refresh.Set() }

// OnChange adds a function that is called with each new Mapper, one call at a time. It must be
// called before Run.
func (d *Directory) OnChange(f func(*Mapper)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onChange = append(d.onChange, f)
}

// Run refreshes at once, then each minute and after RefreshSoon, until ctx ends.
func (d *Directory) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := d.clock.NewTicker(refreshInterval)
	defer ticker.Stop()
	logged := ""
	for {
		message := ""
		if err := d.Refresh(ctx); err != nil && ctx.Err() == nil {
			// An aggregated API may be down for days: log it once.
			if message = err.Error(); message != logged {
				logger.Error(err, "Could not learn all of the cluster's resources")
			}
		}
		logged = message
		if !wake.Sleep(ctx, d.clock, minRefreshInterval) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-d.refresh:
		}
	}
}

// Refresh runs discovery. Groups that it fails for, because their aggregated API is down, keep
// their resources, and are named by the error.
func (d *Directory) Refresh(ctx context.Context) error {
	groups, lists, err := d.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && len(groups) == 0 { // an aggregated API may make the document of all groups too long
		groups, lists, err = d.discovery.WithLegacyWithContext(ctx).ServerGroupsAndResourcesWithContext(ctx)
	}
	if len(lists) == 0 || len(groups) == 0 {
		if err == nil {
			err = fmt.Errorf("the answer is empty")
		}
		return fmt.Errorf("discovering the cluster's resources: %w", err)
	}
	groups, lists = withoutMetrics(groups, lists)
	d.mu.Lock()
	defer d.mu.Unlock()
	next := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		next[l.GroupVersion] = l
	}
	if failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err); partial {
		for gv := range failed {
			if old := d.lists[gv.String()]; old != nil && next[gv.String()] == nil {
				next[gv.String()] = old
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("discovering the cluster's resources: %w", err)
	}
	if reflect.DeepEqual(groups, d.groups) && reflect.DeepEqual(next, d.lists) {
		return err
	}
	d.groups, d.lists = groups, next
	mapper := NewMapper(groups, slices.Collect(maps.Values(next)))
	d.current.Store(mapper)
	for _, f := range d.onChange {
		f(mapper)
	}
	return err
}

// withoutMetrics removes the groups whose "resources" are names of metrics: teams choose them,
// so "code" or "instance" may be one, and they change with what is measured.
func withoutMetrics(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) ([]*metav1.APIGroup, []*metav1.APIResourceList) {
	isMetrics := func(group string) bool {
		return group == custom_metrics.GroupName || group == external_metrics.GroupName
	}
	groups = slices.DeleteFunc(slices.Clone(groups), func(g *metav1.APIGroup) bool { return isMetrics(g.Name) })
	lists = slices.DeleteFunc(slices.Clone(lists), func(l *metav1.APIResourceList) bool {
		group, _, _ := strings.Cut(l.GroupVersion, "/")
		return isMetrics(group)
	})
	return groups, lists
}
