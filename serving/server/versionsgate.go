// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// registrations tells which versions are registered for this pod's Service.
type registrations interface {
	Registered(context.Context) ([]schema.GroupVersion, error)
}

// peers are the other pods behind the Service.
type peers interface {
	// Ready returns the addresses, host:port, of those that take traffic.
	Ready(context.Context) ([]string, error)
	// Serves asks one of them whether it serves a version.
	Serves(ctx context.Context, address string, version schema.GroupVersion) (bool, error)
}

// versionsGate keeps a pod out of traffic for a version that it does not serve,
// whether or not an operator runs: the aggregator sends a request to any ready
// pod and knows no fallback (KEP-5207). A version that no ready peer serves
// either is no reason to wait: staying away would help nobody.
type versionsGate struct {
	registrations registrations
	peers         peers
	served        sets.Set[schema.GroupVersion]
	clock         clock.PassiveClock

	// since is when this process began, or last saw a registered version that it
	// does not serve.
	since time.Time
}

// discoverySoak is how long a version that this pod does not serve must be gone
// before the gate opens beside other ready pods: the aggregated discovery of each
// kube-apiserver follows an APIService a moment later, and a pod cannot ask them all.
const discoverySoak = 10 * time.Second

// Name implements gate.
func (*versionsGate) Name() string { return "registered-versions" }

// Check implements gate. When a peer cannot be asked, the gate stays closed:
// only an answer proves that traffic for the version is not being served.
func (g *versionsGate) Check(ctx context.Context) error {
	registered, err := g.registrations.Registered(ctx)
	if err != nil {
		return err
	}
	missing := sets.New(registered...).Difference(g.served).UnsortedList()
	if len(missing) == 0 {
		return g.soak(ctx)
	}
	g.since = g.clock.Now()
	sortVersions(missing)
	ready, err := g.peers.Ready(ctx)
	if err != nil {
		return err
	}
	for _, version := range missing {
		for _, address := range ready {
			serves, err := g.peers.Serves(ctx, address, version)
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

// Look implements onlooker: what was registered a moment ago counts, too.
func (g *versionsGate) Look(ctx context.Context) { _ = g.Check(ctx) }

// soak waits until discovery follows, unless no other pod takes traffic.
func (g *versionsGate) soak(ctx context.Context) error {
	if g.clock.Since(g.since) >= discoverySoak {
		return nil
	}
	if ready, err := g.peers.Ready(ctx); err == nil && len(ready) == 0 {
		return nil
	}
	return fmt.Errorf("this pod serves all that is registered: it takes traffic once that has been so for %s, "+
		"and every kube-apiserver has former versions out of its discovery", discoverySoak)
}
