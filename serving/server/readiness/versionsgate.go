// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// discoveryDelay is how long a version that this pod does not serve must be unregistered
// before the gate opens beside other ready pods: the aggregated discovery of each
// kube-apiserver follows an APIService with a delay, and a pod cannot ask them all.
const discoveryDelay = 10 * time.Second

// VersionsGate keeps a pod out of traffic while an API version is registered that this pod
// does not serve and a ready peer does: the aggregator sends a request to any ready pod and
// does not retry with another (KEP-5207). If no ready peer serves the version either,
// waiting would help nobody. It works without a running operator.
type VersionsGate struct {
	service service
	served  sets.Set[schema.GroupVersion]
	clock   clock.PassiveClock

	// missingAt is when this process started, or last saw a registered version that it
	// does not serve.
	missingAt time.Time
}

// service is the Service in front of this pod.
type service interface {
	// Registered returns the versions whose APIServices name the Service.
	Registered(context.Context) ([]schema.GroupVersion, error)
	// ReadyPeers returns the addresses, host:port, of its other ready pods.
	ReadyPeers(context.Context) ([]string, error)
	// Serves reports whether the pod at address serves a version.
	Serves(ctx context.Context, address string, version schema.GroupVersion) (bool, error)
}

// NewVersionsGate returns the gate of a pod behind s that serves these versions.
func NewVersionsGate(s *Service, served sets.Set[schema.GroupVersion], c clock.PassiveClock) *VersionsGate {
	return &VersionsGate{service: s, served: served, clock: c, missingAt: c.Now()}
}

// Name implements Gate.
func (*VersionsGate) Name() string { return "registered-versions" }

// Check implements Gate. The gate stays closed when a peer cannot be reached: only a response
// proves that the peer does not serve the version.
func (g *VersionsGate) Check(ctx context.Context) error {
	registered, err := g.service.Registered(ctx)
	if err != nil {
		return err
	}
	missing := slices.SortedFunc(maps.Keys(sets.New(registered...).Difference(g.served)), func(a, b schema.GroupVersion) int {
		return strings.Compare(a.String(), b.String())
	})
	if len(missing) == 0 {
		return g.awaitDiscovery(ctx)
	}
	g.missingAt = g.clock.Now()
	ready, err := g.service.ReadyPeers(ctx)
	if err != nil {
		return err
	}
	for _, version := range missing {
		for _, address := range ready {
			serves, err := g.service.Serves(ctx, address, version)
			if err != nil {
				return fmt.Errorf("%s is registered and this pod does not serve it; asking ready pod %s whether it does: %w", version, address, err)
			}
			if serves {
				return fmt.Errorf("%s is registered and ready pod %s serves it, but this pod does not: "+
					"it takes no traffic until APIService %s.%s is removed", version, address, version.Version, version.Group)
			}
		}
		klog.FromContext(ctx).V(2).Info("A registered version is served neither by this pod nor by any ready pod", "version", version, "readyPods", len(ready))
	}
	return nil
}

// Precheck implements prechecker: it records versions that are registered before the turn
// of this gate.
func (g *VersionsGate) Precheck(ctx context.Context) { _ = g.Check(ctx) }

// awaitDiscovery waits until discovery has followed, unless no other pod takes traffic.
func (g *VersionsGate) awaitDiscovery(ctx context.Context) error {
	if g.clock.Since(g.missingAt) >= discoveryDelay {
		return nil
	}
	if ready, err := g.service.ReadyPeers(ctx); err == nil && len(ready) == 0 {
		return nil
	}
	return fmt.Errorf("this pod serves all that is registered: it takes traffic once that has been so for %s, "+
		"and every kube-apiserver has former versions out of its discovery", discoveryDelay)
}
