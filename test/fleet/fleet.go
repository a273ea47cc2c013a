// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet is thousands of fake kubelets in one process.
//
// Each node listens on loopback with its own TLS certificate and answers
// /metrics/resource as a kubelet of Kubernetes 1.37 does: the same series in the
// same order, each sample with its own timestamp. What a node reports at time t
// is a pure function of the seed, the node, its pods and t, so a test can compute
// the true rate of a container and compare it with what a scraper made of it.
//
// Faults (see [Kind]) are switched on, and pods are restarted and moved
// ([Fleet.Restart], [Fleet.Move]), while the fleet runs.
package fleet

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// housekeeping is the kubelet's period: node samples are renewed each time, container
// and pod samples after one to two periods.
const housekeeping = 10 * time.Second

// Options describe a fleet. The zero value of a field stands for its default.
type Options struct {
	// Nodes, default 1.
	Nodes int
	// PodsPerNode, default 30.
	PodsPerNode int
	// ContainersPerPod, default 2.
	ContainersPerPod int
	// Namespaces the pods are spread over, default 10.
	Namespaces int
	// Seed decides every value, name and phase.
	Seed uint64
	// Clock decides what "now" is to a scrape. Default the real one. The fleet's pods are
	// running when it is made: their start times lie in the 30 days before.
	Clock clock.Clock
	// Latency of the answers, default none. SetLatency changes it.
	Latency Latency
	// Answering is called when a kubelet is about to send a body, with the time at
	// which it says so: nobody can know what is in there any sooner. nil for none.
	Answering func(node *Node, at time.Time)
}

func (o Options) withDefaults() Options {
	setDefault(&o.Nodes, 1)
	setDefault(&o.PodsPerNode, 30)
	setDefault(&o.ContainersPerPod, 2)
	setDefault(&o.Namespaces, 10)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

func setDefault(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

// Fleet is the nodes, their pods and the server in front of them.
type Fleet struct {
	options    Options
	clock      clock.Clock
	latency    atomic.Pointer[lognormal]
	authority  *authority.Authority
	namespaces []string
	nodes      []*Node
	byName     map[string]*Node
	byAddress  map[netip.AddrPort]*Node // set by Start
	server     server

	// mu serializes changes of pods. Scrapes never take it: they read each node's snapshot.
	mu   sync.Mutex
	pods map[types.NamespacedName]*Node
}

// New builds the fleet in memory; Start makes it listen.
func New(options Options) (*Fleet, error) {
	o := options.withDefaults()
	if o.Nodes < 0 || o.PodsPerNode < 0 || o.ContainersPerPod < 0 || o.Namespaces < 0 {
		return nil, fmt.Errorf("fleet of %d nodes, %d pods per node, %d containers per pod, %d namespaces: counts must not be negative",
			o.Nodes, o.PodsPerNode, o.ContainersPerPod, o.Namespaces)
	}
	f := &Fleet{options: o, clock: o.Clock, byName: map[string]*Node{}, pods: map[types.NamespacedName]*Node{}}
	for i := range o.Namespaces {
		f.namespaces = append(f.namespaces, fmt.Sprintf("fleet-%02d", i))
	}
	if err := f.SetLatency(o.Latency); err != nil {
		return nil, err
	}
	var err error
	if f.authority, err = authority.New("fleet-ca"); err != nil {
		return nil, err
	}
	epoch := o.Clock.Now().Truncate(time.Millisecond)
	for i := range o.Nodes {
		n := newNode(o.Seed, i, epoch)
		pods := make([]*Pod, o.PodsPerNode)
		for j := range pods {
			pods[j] = f.newPod(startBefore(epoch, digest(o.Seed, "start", n.Name, fmt.Sprint(j))))
			f.pods[pods[j].Key()] = n
		}
		n.state.Store(newNodeState(pods, ledger{}))
		f.nodes = append(f.nodes, n)
		f.byName[n.Name] = n
	}
	return f, nil
}

// Authority that signs the kubelets' certificates.
func (f *Fleet) Authority() *authority.Authority { return f.authority }

// Nodes in a fixed order. The slice is not to be changed.
func (f *Fleet) Nodes() []*Node { return f.nodes }

// Node by name, nil if the fleet has no such node.
func (f *Fleet) Node(name string) *Node { return f.byName[name] }

// Namespaces that the fleet's pods live in. The slice is not to be changed.
func (f *Fleet) Namespaces() []string { return f.namespaces }

// startBefore draws a moment in the 30 days before the epoch, an hour away from
// it, so that all of the first pods are long in their stride.
func startBefore(epoch time.Time, draw uint64) time.Time {
	const span = 30 * 24 * time.Hour
	return epoch.Add(-time.Hour - time.Duration(fraction(draw)*float64(span))).Truncate(time.Millisecond)
}
