// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind of a fault. The empty kind is a healthy kubelet.
type Kind string

// Faults of the connection.
const (
	// Slow answers after Fault.Duration, default 5s.
	Slow Kind = "slow"
	// Dribble sends the headers at once and the body piece by piece, over
	// Fault.Duration, default 30s.
	Dribble Kind = "dribble"
	// Hanging takes the request and never answers.
	Hanging Kind = "hanging"
	// Reset takes the request and resets the connection.
	Reset Kind = "reset"
	// Aborted closes the connection in the middle of the announced body.
	Aborted Kind = "aborted"
	// Truncated ends the body in the middle of a line, and well for HTTP.
	Truncated Kind = "truncated"
	// Huge goes on with valid series after the true ones, Fault.Bytes in all,
	// default 2 GiB.
	Huge Kind = "huge"
	// Garbage answers 64 KiB of noise with status 200.
	Garbage Kind = "garbage"
)

// Faults of identity. Switching one on or off closes the node's connections, so
// that the next request sees another certificate.
const (
	// WrongCA presents a certificate of an unknown CA.
	WrongCA Kind = "wrong-ca"
	// WrongName presents a certificate of the right CA for another node.
	WrongName Kind = "wrong-name"
	// ChangedCertificate presents a valid certificate, another one at each time
	// the fault is switched on: what a client that pins must notice.
	ChangedCertificate Kind = "changed-certificate"
	// Unauthorized answers 401.
	Unauthorized Kind = "unauthorized"
	// Forbidden answers 403.
	Forbidden Kind = "forbidden"
	// InternalError answers 500.
	InternalError Kind = "internal-error"
)

// Faults of the samples. Those below Frozen hit the node's samples and all pods
// and containers, or only the first Fault.Containers containers of the body.
const (
	// Frozen repeats for ever what the node reported when the fault was switched on.
	Frozen Kind = "frozen"
	// NaN in place of every value.
	NaN Kind = "nan"
	// Negative values.
	Negative Kind = "negative"
	// Enormous values, beyond what an unsigned 64-bit integer holds.
	Enormous Kind = "enormous"
	// Duplicate repeats each series with another value.
	Duplicate Kind = "duplicate"
	// NoLabels leaves out the labels of containers and pods.
	NoLabels Kind = "no-labels"
	// Old timestamps, Fault.Duration in the past, default 1h.
	Old Kind = "old-timestamps"
	// Future timestamps, Fault.Duration ahead, default 1h.
	Future Kind = "future-timestamps"
)

// defaultDurations tells which kinds take a duration, and its default.
var defaultDurations = map[Kind]time.Duration{
	Slow: 5 * time.Second, Dribble: 30 * time.Second, Old: time.Hour, Future: time.Hour,
}

// distortions are the faults that spoil single samples.
var distortions = map[Kind]func(*sample, Fault){
	NaN:       func(s *sample, _ Fault) { s.scale(math.NaN()) },
	Negative:  func(s *sample, _ Fault) { s.scale(-1) },
	Enormous:  func(s *sample, _ Fault) { s.cpu, s.memory, s.swap = 1e300, 1e300, 1e300 },
	Duplicate: func(s *sample, _ Fault) { s.scale(2) },
	NoLabels:  func(s *sample, _ Fault) { s.labels = " " },
	Old:       func(s *sample, f Fault) { s.timestamp -= f.Duration.Milliseconds() },
	Future:    func(s *sample, f Fault) { s.timestamp += f.Duration.Milliseconds() },
}

func (s *sample) scale(factor float64) {
	s.cpu, s.memory, s.swap = s.cpu*factor, s.memory*factor, s.swap*factor
}

// Kinds in alphabetical order.
func Kinds() []Kind {
	kinds := []Kind{
		Slow, Dribble, Hanging, Reset, Aborted, Truncated, Huge, Garbage,
		WrongCA, WrongName, ChangedCertificate, Unauthorized, Forbidden, InternalError, Frozen,
	}
	for kind := range distortions {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// Fault of a kubelet. The zero value is a healthy one.
type Fault struct {
	Kind Kind `json:"kind"`
	// Duration of slow answers, or how far timestamps are off; 0: the kind's default.
	Duration metav1.Duration `json:"duration,omitzero"`
	// Bytes of a huge body; 0: 2 GiB.
	Bytes int64 `json:"bytes,omitempty"`
	// Containers that a fault of samples hits, counted from the top of the body;
	// 0: all of them, and the pods' and the node's samples too.
	Containers int `json:"containers,omitempty"`
}

func (f Fault) withDefaults() (Fault, error) {
	if f.Kind != "" && !slices.Contains(Kinds(), f.Kind) {
		return f, fmt.Errorf("unknown fault %q: known are %s", f.Kind, joined(Kinds()))
	}
	if f.Duration.Duration < 0 || f.Bytes < 0 || f.Containers < 0 {
		return f, fmt.Errorf("fault %s: duration, bytes and containers must not be negative", f.Kind)
	}
	setDefault(&f.Duration.Duration, defaultDurations[f.Kind])
	if f.Kind == Huge {
		setDefault(&f.Bytes, 2<<30)
	}
	return f, nil
}

func joined(kinds []Kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// onConnection tells whether the kind shows only in a new TLS handshake.
func (k Kind) onConnection() bool {
	return k == WrongCA || k == WrongName || k == ChangedCertificate
}

// activeFault is a node's fault while it lasts.
type activeFault struct {
	Fault
	over     chan struct{} // closed when another one takes its place
	frozen   *nodeState    // of Frozen
	frozenAt time.Time
}

func newActiveFault(f Fault) *activeFault { return &activeFault{Fault: f, over: make(chan struct{})} }

// distort spoils the samples as the fault says.
func (a *activeFault) distort(s *samples) {
	spoil, ok := distortions[a.Kind]
	if !ok {
		return
	}
	s.containers = a.distortRows(s.containers, cmp.Or(a.Containers, len(s.containers)), spoil)
	if a.Containers == 0 {
		s.pods = a.distortRows(s.pods, len(s.pods), spoil)
		s.node = a.distortRows(s.node, len(s.node), spoil)
	}
}

func (a *activeFault) distortRows(rows []sample, hit int, spoil func(*sample, Fault)) []sample {
	hit = min(hit, len(rows))
	if a.Kind == Duplicate {
		for i := hit - 1; i >= 0; i-- {
			rows = slices.Insert(rows, i, rows[i])
		}
		for i := range hit {
			spoil(&rows[2*i+1], a.Fault)
		}
		return rows
	}
	for i := range hit {
		spoil(&rows[i], a.Fault)
	}
	return rows
}

// Fault of the node now.
func (n *Node) Fault() Fault { return n.fault.Load().Fault }

// SetFault switches a fault on at the named nodes, in place of the one they had;
// the zero Fault heals them. No names: all nodes.
func (f *Fleet) SetFault(fault Fault, names ...string) error {
	fault, err := fault.withDefaults()
	if err != nil {
		return err
	}
	nodes, err := f.named(names)
	if err != nil {
		return fmt.Errorf("setting fault %q: %w", fault.Kind, err)
	}
	for _, n := range nodes {
		active := newActiveFault(fault)
		if fault.Kind == Frozen {
			active.frozen, active.frozenAt = n.state.Load(), f.clock.Now()
		}
		if fault.Kind == ChangedCertificate {
			n.certificates.forget(ChangedCertificate)
		}
		before := n.fault.Swap(active)
		close(before.over)
		if before.Kind.onConnection() || fault.Kind.onConnection() {
			n.door.closeAll()
		}
	}
	return nil
}

// Share of the nodes, at least one, drawn by the seed: the same share gives the
// same nodes, and a larger share contains a smaller one.
func (f *Fleet) Share(share float64) []string {
	nodes := slices.Clone(f.nodes)
	slices.SortFunc(nodes, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(digest(a.seed, "share"), digest(b.seed, "share")), strings.Compare(a.Name, b.Name))
	})
	count := min(max(1, int(math.Round(share*float64(len(nodes))))), len(nodes))
	names := make([]string, count)
	for i := range names {
		names[i] = nodes[i].Name
	}
	return names
}

func (f *Fleet) named(names []string) ([]*Node, error) {
	if len(names) == 0 {
		return f.nodes, nil
	}
	nodes := make([]*Node, len(names))
	for i, name := range names {
		if nodes[i] = f.byName[name]; nodes[i] == nil {
			return nil, fmt.Errorf("the fleet has no node %q", name)
		}
	}
	return nodes, nil
}
