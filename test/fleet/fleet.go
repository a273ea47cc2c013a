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
// Faults (see [Kind]) and churn ([Fleet.Restart], [Fleet.Move] and so on) are
// switched on while the fleet runs, from Go or over HTTP ([Fleet.ControlHandler]).
package fleet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Swap says how kubelets report swap.
type Swap string

const (
	// SwapIdle reports every swap series as 0, as a kubelet on a node without swap does.
	SwapIdle Swap = "idle"
	// SwapUsed reports swap in use by a quarter of the containers.
	SwapUsed Swap = "used"
	// SwapAbsent reports no swap series, as a kubelet without swap accounting does.
	SwapAbsent Swap = "absent"
)

// Options describe a fleet. The zero value of a field stands for its default.
type Options struct {
	// Name labels every object of the fleet and starts its nodes' and namespaces'
	// names; two fleets in one cluster need two names. Default "fleet".
	Name string
	// Nodes, default 1.
	Nodes int
	// PodsPerNode, default 30; -1 for empty nodes.
	PodsPerNode int
	// ContainersPerPod, default 2.
	ContainersPerPod int
	// Namespaces the pods are spread over, default 10.
	Namespaces int
	// Period is the kubelet's housekeeping period, default 10s. Node samples are
	// renewed every Period, container and pod samples after one to two Periods.
	Period time.Duration
	// Seed decides every value, name and phase.
	Seed uint64
	// Swap, default SwapIdle.
	Swap Swap
	// Token is the bearer token that kubelets accept; empty: any but an empty one.
	Token string
	// Authority signs the kubelets' certificates; nil: a new one. A cluster's own
	// CA makes a scraper that trusts the cluster's kubelets trust these as well.
	Authority *Authority
	// IP that all kubelets listen on, each on a port of its own. Default 127.0.0.1.
	IP string
	// IPPerNode gives each node an address of its own in 127.64.0.0/10 instead.
	IPPerNode bool
	// MetricsPath is where kubelets answer, default /metrics/resource. Another one
	// is announced in the Node's annotation metrics.k8s.io/resource-metrics-path.
	MetricsPath string
	// Clock decides what "now" is to a scrape. Default the real one.
	Clock clock.Clock
	// Answering is called when a kubelet is about to send a body, with the time at
	// which it says so: nobody can know what is in there any sooner. nil for none.
	Answering func(node *Node, at time.Time)
	// Epoch is when the fleet's pods are already running: their start times lie in
	// the 30 days before. Default Clock.Now(); fix it to get the same values again.
	Epoch time.Time
}

func (o Options) withDefaults() Options {
	setDefault(&o.Name, "fleet")
	setDefault(&o.Nodes, 1)
	setDefault(&o.PodsPerNode, 30)
	setDefault(&o.ContainersPerPod, 2)
	setDefault(&o.Namespaces, 10)
	setDefault(&o.Period, 10*time.Second)
	setDefault(&o.Swap, SwapIdle)
	setDefault(&o.IP, "127.0.0.1")
	setDefault(&o.MetricsPath, defaultMetricsPath)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Epoch.IsZero() {
		o.Epoch = o.Clock.Now()
	}
	o.Epoch = o.Epoch.Truncate(time.Millisecond)
	o.PodsPerNode = max(o.PodsPerNode, 0)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o Options) validate() error {
	switch {
	case o.Nodes < 0 || o.ContainersPerPod < 0 || o.Namespaces < 0:
		return fmt.Errorf("fleet of %d nodes, %d containers per pod, %d namespaces: counts must not be negative",
			o.Nodes, o.ContainersPerPod, o.Namespaces)
	case o.Period < time.Second:
		return fmt.Errorf("housekeeping period %v: must be at least 1s", o.Period)
	case o.Swap != SwapIdle && o.Swap != SwapUsed && o.Swap != SwapAbsent:
		return fmt.Errorf("swap %q: must be %s, %s or %s", o.Swap, SwapIdle, SwapUsed, SwapAbsent)
	case unusable(o.IP):
		return fmt.Errorf("address %q: must be one IP that scrapers can dial, as it goes into Node objects and certificates", o.IP)
	case o.IPPerNode && o.Nodes > 1<<22:
		return fmt.Errorf("%d nodes: 127.64.0.0/10 has room for %d", o.Nodes, 1<<22)
	}
	return nil
}

func unusable(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err != nil || ip.IsUnspecified()
}

// Fleet is the nodes, their pods and the server in front of them.
type Fleet struct {
	options    Options
	clock      clock.Clock
	authority  *Authority
	impostor   *Authority // signs what the fault WrongCA presents
	namespaces []string
	nodes      []*Node
	byName     map[string]*Node
	server     server

	// mu serializes churn. Scrapes never take it: they read each node's snapshot.
	mu      sync.Mutex
	homes   map[types.NamespacedName]*Node
	created int // pods ever made, which numbers the next one
	random  *rand.Rand
}

// New builds the fleet in memory; Start makes it listen.
func New(options Options) (*Fleet, error) {
	o := options.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	f := &Fleet{
		options:   o,
		clock:     o.Clock,
		authority: o.Authority,
		byName:    make(map[string]*Node, o.Nodes),
		homes:     make(map[types.NamespacedName]*Node, o.Nodes*o.PodsPerNode),
		random:    rand.New(rand.NewPCG(o.Seed, 0x0c4a7)),
	}
	for i := range o.Namespaces {
		f.namespaces = append(f.namespaces, fmt.Sprintf("%s-%02d", o.Name, i))
	}
	var err error
	if f.authority == nil {
		if f.authority, err = NewAuthority("fleet-ca"); err != nil {
			return nil, err
		}
	}
	if f.impostor, err = NewAuthority("fleet-other-ca"); err != nil {
		return nil, err
	}
	for i := range o.Nodes {
		n := newNode(o, i)
		pods := make([]*Pod, o.PodsPerNode)
		for j := range pods {
			pods[j] = f.newPod(startBefore(o.Epoch, digest(o.Seed, "start", n.Name, fmt.Sprint(j))))
			f.homes[pods[j].Key()] = n
		}
		n.state.Store(newNodeState(pods, ledger{}))
		f.nodes = append(f.nodes, n)
		f.byName[n.Name] = n
	}
	return f, nil
}

// Options the fleet runs with, defaults filled in.
func (f *Fleet) Options() Options { return f.options }

// Authority that signs the kubelets' certificates.
func (f *Fleet) Authority() *Authority { return f.authority }

// Nodes in a fixed order. The slice is not to be changed.
func (f *Fleet) Nodes() []*Node { return f.nodes }

// Node by name, nil if the fleet has no such node.
func (f *Fleet) Node(name string) *Node { return f.byName[name] }

// Pod of that name and the node it is on now, nil if there is none.
func (f *Fleet) Pod(key types.NamespacedName) (*Pod, *Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, pod, err := f.find(key)
	if err != nil {
		return nil, nil
	}
	return pod, n
}

// Namespaces that the fleet's pods live in. The slice is not to be changed.
func (f *Fleet) Namespaces() []string { return f.namespaces }

// startBefore draws a moment in the 30 days before the epoch, an hour away from
// it, so that all of the first pods are long in their stride.
func startBefore(epoch time.Time, draw uint64) time.Time {
	const span = 30 * 24 * time.Hour
	return epoch.Add(-time.Hour - time.Duration(fraction(draw)*float64(span))).Truncate(time.Millisecond)
}
