// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package restmapping

import (
	"context"
	"fmt"
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
)

// How often the cluster is asked.
const (
	// period between two looks, which finds what was installed since.
	period = time.Minute
	// pause is the least time between two looks, however often Wanted is called.
	pause = 5 * time.Second
)

// Discovery is the part of a discovery client that is needed; it must not cache.
type Discovery interface {
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// Directory keeps the newest Index. client-go's deferred mapper never looks again
// once it holds an answer, and controller-runtime's lazy one needs to be told the
// group; labels name resources without one.
type Directory struct {
	discovery Discovery
	clock     clock.WithTicker
	current   atomic.Pointer[Index]
	wanted    chan struct{}

	mu       sync.Mutex
	groups   []*metav1.APIGroup
	lists    map[string]*metav1.APIResourceList
	onChange []func(*Index)
}

// NewDirectory returns a directory that knows nothing until it ran.
func NewDirectory(d Discovery, c clock.WithTicker) *Directory {
	dir := &Directory{discovery: d, clock: c, wanted: make(chan struct{}, 1)}
	dir.current.Store(&Index{})
	return dir
}

// Current returns the newest index, never nil.
func (d *Directory) Current() *Index { return d.current.Load() }

// Find is that of the newest index. A name that is not known has the cluster asked
// again soon.
func (d *Directory) Find(gr schema.GroupResource) (Resource, bool) {
	r, ok := d.Current().Find(gr)
	if !ok {
		d.Wanted()
	}
	return r, ok
}

// Wanted has the cluster asked again soon, for a name that is not known. It does not
// wait.
func (d *Directory) Wanted() {
	select {
	case d.wanted <- struct{}{}:
	default:
	}
}

// OnChange has f called with each index that differs from the one before, one call at
// a time; it must be called before Run.
func (d *Directory) OnChange(f func(*Index)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onChange = append(d.onChange, f)
}

// Run asks the cluster at once, then each minute and when Wanted, until ctx ends.
func (d *Directory) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	ticker := d.clock.NewTicker(period)
	defer ticker.Stop()
	told := ""
	for {
		message := ""
		if err := d.Refresh(ctx); err != nil && ctx.Err() == nil {
			// An aggregated API may be down for days: once is enough.
			if message = err.Error(); message != told {
				logger.Error(err, "Could not learn all of the cluster's resources")
			}
		}
		told = message
		rest := d.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C():
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		case <-d.wanted:
		}
	}
}

// Refresh asks the cluster now. Groups that cannot be discovered keep what they had,
// as when their aggregated API is down; the error names them.
func (d *Directory) Refresh(ctx context.Context) error {
	groups, lists, err := d.discovery.ServerGroupsAndResourcesWithContext(ctx)
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
	all := make([]*metav1.APIResourceList, 0, len(next))
	for _, l := range next {
		all = append(all, l)
	}
	index := NewIndex(groups, all)
	d.current.Store(index)
	for _, f := range d.onChange {
		f(index)
	}
	return err
}

// withoutMetrics leaves out the groups whose "resources" are names of metrics: teams choose
// them, so "code" or "instance" may be one, and they come and go with what is measured.
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
