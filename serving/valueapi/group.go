// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// Options are what an API group shares with others.
type Options struct {
	// Source holds the values of the requests that are followed.
	Source stream.Source
	// Admission counts the watches of all API groups.
	Admission *stream.Admission
	// Settings of watches, until Apply.
	Settings stream.Settings
	Clock    clock.WithTicker
	// Random returns numbers in [0, 1) and may be called by several goroutines.
	Random func() float64
	// MinRequestTimeout is the least for which a watch stays open whose client names no
	// time; it ends before twice that. It is the API server's option of that name.
	MinRequestTimeout time.Duration
}

// Group is an API group in an API server.
type Group struct {
	*stream.WatchVerb
	api               API
	hub               *stream.Hub
	metrics           map[schema.GroupVersion]*stream.Metrics
	clock             clock.WithTicker
	random            func() float64
	minRequestTimeout time.Duration
	// aggregated serves /apis.
	aggregated aggregated.ResourceManager

	// mu is held while discovery changes.
	mu sync.Mutex
	// told is what discovery tells of, and untold why it does not tell of what there is
	// since; empty if it does.
	told   document
	untold string
	// watchable says that discovery has the verb watch.
	watchable bool
	// resources are what discovery tells, the same in each version.
	resources atomic.Pointer[[]metav1.APIResource]
}

// Install adds an API group to an API server. It serves watch until ServeWatch says
// otherwise. The API server needs NewRequestInfoResolver for the group.
func Install(server *genericapiserver.GenericAPIServer, api API, o Options) (*Group, error) {
	if len(api.Versions) == 0 {
		return nil, errors.New("an API group without versions cannot be installed")
	}
	g := &Group{
		api: api, clock: o.Clock, random: o.Random, minRequestTimeout: o.MinRequestTimeout,
		aggregated: server.AggregatedDiscoveryGroupManager,
		hub:        stream.NewHub(o.Source, o.Clock, o.Random, o.Settings),
		metrics:    map[schema.GroupVersion]*stream.Metrics{},
		watchable:  true,
	}
	g.WatchVerb = stream.NewWatchVerb(o.Admission, g.hub)
	for _, version := range api.Versions {
		g.metrics[version] = stream.NewMetrics(MetricsAPI(version))
	}
	g.resources.Store(&[]metav1.APIResource{})
	if err := g.installPaths(server); err != nil {
		return nil, fmt.Errorf("install %s: %w", api.Group(), err)
	}
	g.installGroup(server)
	g.mu.Lock()
	defer g.mu.Unlock()
	first, _ := g.look()
	g.mustAdvertise(klog.Background(), first)
	return g, nil
}

// MetricsAPI returns what requests for a version are counted by: clients name the
// resources, so these are none of it.
func MetricsAPI(version schema.GroupVersion) stream.API {
	return stream.API{Group: version.Group, Version: version.Version}
}

// Hub distributes what the source publishes.
func (g *Group) Hub() *stream.Hub { return g.hub }

// Run keeps the time of watches, and discovery up to date, until the context ends.
func (g *Group) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { g.WatchVerb.Run(ctx) })
	running.Go(func() { g.refresh(ctx) })
	running.Wait()
}

// ServeWatch enables or disables the verb watch in all versions, see stream.WatchVerb. Get does
// not change.
func (g *Group) ServeWatch(serve bool) {
	g.Serve(serve, func(watch bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.watchable = watch
		g.mustAdvertise(klog.Background(), g.told)
	})
}
