// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// Options are what a Source is made of, for its lifetime.
type Options struct {
	// Store takes the points.
	Store *samplestore.Store
	// Clock tells the time, and ends scrapes that take too long.
	Clock clock.Clock
	// Rand returns numbers in [0, 1), as a *rand.Rand does. It spreads replicas
	// against each other; nil spreads the nodes alone.
	Rand interface{ Float64() float64 }
	// RestConfig gives the credentials that kubelets are shown: a token, whose
	// file may rotate, or a client certificate. Its host and its CA are not used.
	RestConfig *rest.Config
	// DefaultCA verifies kubelets where the settings have no CA, PEM; SetDefaultCA
	// replaces it. Without any, scrapes in mode Verify fail and say so.
	DefaultCA []byte
	// Dial opens connections; nil: a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Source scrapes the kubelets of the selected nodes, each on its own schedule.
// Its methods may be called at any time, also before Run.
type Source struct {
	store       *samplestore.Store
	clock       clock.Clock
	credentials *credentials
	// wake tells the scheduler that something changed before its timer ends.
	wake    chan struct{}
	scrapes sync.WaitGroup
	// lines limits the log, over all nodes.
	lines *rate.Limiter

	mu       sync.Mutex
	settings *settings
	// nodes holds all nodes; targets those that are selected.
	nodes   map[string]*Node
	targets map[string]*target
	// ready holds the waiting targets, suspects those of them that took their
	// whole timeout the last time.
	ready, suspects delayqueue.Queue[*target]
	// inFlight counts scrapes under way, suspectsInFlight those of suspects.
	inFlight, suspectsInFlight int
	// suspectsFrom is when suspects may have a single slot again.
	suspectsFrom time.Time
	// seed and added place the next new node in the interval.
	seed  float64
	added uint64
	// round is when the scheduler last looked, zero unless it runs; next is when
	// it will look again unless it is woken, upkeep when it maintains again.
	round, next, upkeep time.Time
	// unlogged counts the lines that the limit held back.
	unlogged int
}

// target is a selected node.
type target struct {
	name string
	uid  types.UID
	// phase in [0, 1) is the node's place in the interval.
	phase float64

	// The fields below are guarded by Source.mu.

	node *Node
	// Entry is when the next scrape, or the one under way, begins; slot, the same or
	// earlier, is where it has its place in the schedule.
	delayqueue.Entry
	slot   time.Time
	rhythm rhythm
	// timeouts counts scrapes in a row that took their whole timeout.
	timeouts int
	// started and timeout are those of the scrape under way; cancel ends it.
	started time.Time
	timeout time.Duration
	cancel  context.CancelFunc
	gone    bool
	// asked is false until the first scrape has ended.
	asked bool
	// failed is the failure of the newest scrape, and message its text with
	// node and address.
	failed  v1alpha1.ScrapeReason
	message string
	// skips is the set of skip reasons of the newest scrape.
	skips uint32
	// sample is the newest one, and renewals counts the distinct ones, up to 2.
	sample     time.Time
	nodeSample bool
	renewals   int

	// The ledger belongs to the scrape under way; the link has a lock.

	ledger ledger
	link   link
}

// NewSource returns a source that scrapes nothing until nodes are set and Run is
// called. It fails when the credentials or the settings cannot be used.
func NewSource(o Options, initial Settings) (*Source, error) {
	if o.Store == nil || o.Clock == nil {
		return nil, errors.New("kubelet source: a store and a clock are needed")
	}
	c, err := newCredentials(o.RestConfig, o.DefaultCA, o.Dial)
	if err != nil {
		return nil, err
	}
	cfg, err := c.settle(initial, nil)
	if err != nil {
		return nil, err
	}
	s := &Source{
		store:       o.Store,
		clock:       o.Clock,
		credentials: c,
		wake:        make(chan struct{}, 1),
		lines:       rate.NewLimiter(logRate, logBurst),
		settings:    cfg,
		nodes:       map[string]*Node{},
		targets:     map[string]*target{},
	}
	if o.Rand != nil {
		s.seed = o.Rand.Float64()
	}
	return s, nil
}

// Apply puts other settings in force: at once for what comes, without a restart
// and without a burst. On an error the old settings stay.
func (s *Source) Apply(next Settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg, err := s.credentials.settle(next, s.settings)
	if err != nil {
		return err
	}
	old := s.settings
	s.settings = cfg
	now := s.clock.Now()
	for _, t := range s.targets {
		if old.security != cfg.security {
			t.link.closeIdle()
		}
		if old.Interval != cfg.Interval && t.Queued() {
			s.unqueue(t)
			s.schedule(t, now)
		}
	}
	for _, n := range s.nodes {
		s.reconcile(n, now)
	}
	s.nudge()
	return nil
}

// SetDefaultCA replaces Options.DefaultCA, PEM, for connections from now on; those
// that were verified with the old one are closed at the end of their scrapes. The
// same CA again changes nothing, and an empty one is as none in Options. On an
// error, which is about certificates that cannot be parsed, the old one stays.
func (s *Source) SetDefaultCA(pem []byte) error {
	if len(pem) > 0 {
		if _, err := parseCA(pem, defaultCAName); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(pem, s.credentials.defaultCA) {
		return nil
	}
	s.credentials.defaultCA = bytes.Clone(pem)
	if s.settings.TLS != v1alpha1.KubeletTLSVerify || len(s.settings.CABundle) > 0 {
		// It is not in use, and another security would forget the pins.
		return nil
	}
	next := *s.settings
	var err error
	if next.security, err = s.credentials.secure(next.TLS, nil); err != nil {
		return err
	}
	s.settings = &next
	for _, t := range s.targets {
		t.link.closeIdle()
	}
	return nil
}

// SetNode takes in a node that is new or has changed. A node with another UID
// than before is another machine: nothing is kept of the old one.
func (s *Source) SetNode(n *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.nodes[n.Name]; ok && old.equal(n) {
		return
	}
	s.nodes[n.Name] = n
	s.reconcile(n, s.clock.Now())
}

// DeleteNode forgets a node. Its points go with its metadata, or age out.
func (s *Source) DeleteNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
	if t := s.targets[name]; t != nil {
		s.drop(t)
	}
}

// reconcile makes, changes or drops the target of a node. The caller holds s.mu.
func (s *Source) reconcile(n *Node, now time.Time) {
	selected := s.settings.NodeSelector.Matches(labels.Set(n.Labels))
	t := s.targets[n.Name]
	if t != nil && (!selected || t.uid != n.UID) {
		s.drop(t)
		t = nil
	}
	switch {
	case !selected:
	case t == nil:
		t = &target{name: n.Name, uid: n.UID, node: n, phase: s.place()}
		s.targets[n.Name] = t
		s.schedule(t, now)
	case !t.node.sameEndpoint(n):
		t.node = n
		t.link.closeIdle()
		if t.timeouts > 0 && t.Queued() {
			// It may answer at its new address.
			s.unqueue(t)
			t.timeouts = 0
			s.schedule(t, now)
		}
	default:
		t.node = n
	}
}

// place returns the phase of a new node. Steps of the golden ratio spread any
// number of nodes evenly, whichever number it is.
func (s *Source) place() float64 {
	_, phase := math.Modf(s.seed + float64(s.added)/math.Phi)
	s.added++
	return phase
}

func (s *Source) drop(t *target) {
	s.unqueue(t)
	delete(s.targets, t.name)
	t.gone = true
	if t.cancel != nil {
		t.cancel()
	}
	t.link.closeIdle()
}

// nudge wakes the scheduler.
func (s *Source) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
