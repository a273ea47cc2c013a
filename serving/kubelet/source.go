// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/schedule"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet/refresh"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// Options are the options of a Source that do not change.
type Options struct {
	// Store stores the points.
	Store *samplestore.Store
	Clock clock.Clock
	// RestConfig has the credentials for kubelets: a token, whose file may rotate,
	// or a client certificate. Its host and CA are not used.
	RestConfig *rest.Config
	// Tokens, if not nil, replaces all credentials of RestConfig. A token that a kubelet
	// rejected is reset.
	Tokens transport.ResettableTokenSource
	// DefaultCA verifies kubelets if the settings have no CA, PEM; SetDefaultCA
	// replaces it. Without any, scrapes in modes Verify and VerifyOrPin fail.
	DefaultCA []byte
	// Dial opens connections; nil means a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Source scrapes the kubelets of the selected nodes, each on its own schedule. Its
// methods are safe for concurrent use, also before Run.
type Source struct {
	store       *samplestore.Store
	clock       clock.Clock
	credentials *credentials
	// wake wakes the scheduler before its timer ends.
	wake    wake.Signal
	scrapes sync.WaitGroup
	// logLimiter limits the log entries of all nodes.
	logLimiter *rate.Limiter

	mu       sync.Mutex
	settings *settings
	// nodes holds all nodes, targets the selected ones, by name.
	nodes   map[string]*Node
	targets map[string]*target
	// queue holds the waiting targets, slowTargets those of them whose last scrape
	// timed out.
	queue, slowTargets delayqueue.Queue[*target]
	// inFlight counts running scrapes, slowInFlight those of slow targets.
	inFlight, slowInFlight int
	// slowFrom is when a slow target may use the slot again, if there is only one.
	slowFrom time.Time
	// lastRun is when the scheduler last ran, zero before and after Run; nextRun is
	// when it runs again unless woken, nextUpkeep when it calls upkeep again.
	lastRun, nextRun, nextUpkeep time.Time
	// unlogged counts the log entries that the limit dropped.
	unlogged int
}

// target is a selected node.
type target struct {
	name string
	uid  types.UID

	// The fields below are guarded by Source.mu.

	node *Node
	// Entry is when the next or running scrape is due; slot, which is not later, is
	// the slot of the schedule that it uses.
	delayqueue.Entry
	slot      time.Time
	refreshes refresh.Tracker
	// timeouts counts consecutive scrapes that timed out.
	timeouts int
	// started and timeout are those of the running scrape; cancel cancels it.
	started time.Time
	timeout time.Duration
	cancel  context.CancelFunc
	removed bool
	// scraped is false until the first scrape has ended.
	scraped bool
	// failed is why the newest scrape failed, or empty; message is the error with
	// node and address.
	failed  v1alpha1.ScrapeReason
	message string
	// skips is the set of skip reasons of the newest scrape.
	skips uint32
	// sample is the time of the newest sample; samples counts distinct ones, up to 2.
	sample     time.Time
	nodeSample bool
	samples    int
	// sampleAge is how old the newest sample was, if failed is StaleSamples.
	sampleAge time.Duration
	// firstSuccess is when the first successful scrape began; incomplete reports that
	// some of the pods in the newest body have no rate yet.
	firstSuccess time.Time
	incomplete   bool
	// podsWithoutMetrics is that of the newest scrape that had an answer.
	podsWithoutMetrics int
	// warmUp: the last scrape was scheduled to complete the pods of a new node.
	warmUp bool

	// state and host are owned by the running scrape; connection has its own lock.

	state nodeState
	// host is the address that was connected to last.
	host       string
	connection connection
}

// NewSource returns a source without nodes. It returns an error if the credentials
// or the settings are invalid.
func NewSource(o Options, initial Settings) (*Source, error) {
	if o.Store == nil || o.Clock == nil {
		return nil, errors.New("kubelet source: a store and a clock are needed")
	}
	c, err := newCredentials(o.RestConfig, o.Tokens, o.DefaultCA, o.Dial)
	if err != nil {
		return nil, err
	}
	cfg, err := c.validate(initial, nil)
	if err != nil {
		return nil, err
	}
	if initial.Verified {
		c.verified.Store(true)
	}
	return &Source{
		store:       o.Store,
		clock:       o.Clock,
		credentials: c,
		wake:        wake.NewSignal(),
		logLimiter:  rate.NewLimiter(logRate, logBurst),
		settings:    cfg,
		nodes:       map[string]*Node{},
		targets:     map[string]*target{},
	}, nil
}

// Apply replaces the settings for all scrapes that start from now on, and spreads
// the nodes over a new interval. On an error the old settings remain.
func (s *Source) Apply(next Settings) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg, err := s.credentials.validate(next, s.settings)
	if err != nil {
		return err
	}
	if next.Verified {
		s.credentials.verified.Store(true)
	}
	old := s.settings
	s.settings = cfg
	now := s.clock.Now()
	for _, t := range s.targets {
		if old.kubeletTLS != cfg.kubeletTLS {
			t.connection.closeIdle()
		}
		if old.Interval != cfg.Interval && t.Queued() && t.scraped && !t.warmingUp(now) {
			s.unqueue(t)
			s.schedule(t, now)
		}
	}
	for _, n := range s.nodes {
		s.reconcile(n, now)
	}
	s.wake.Set()
	return nil
}

// SetDefaultCA replaces Options.DefaultCA, PEM, for new connections; those that were
// verified with the old one are not used by later scrapes. If the CA cannot
// be parsed, it returns an error and the old one remains.
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
	if s.settings.kubeletTLS.roots == nil || len(s.settings.CABundle) > 0 {
		// It is not used, and another kubeletTLS would drop the pins.
		return nil
	}
	next := *s.settings
	var err error
	if next.kubeletTLS, err = s.credentials.kubeletTLS(next.TLS, nil); err != nil {
		return err
	}
	s.settings = &next
	for _, t := range s.targets {
		t.connection.closeIdle()
	}
	return nil
}

// SetNode adds or updates a node. A node with another UID is a new machine, and no
// state of the old one is kept.
func (s *Source) SetNode(n *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.nodes[n.Name]; ok && old.equal(n) {
		return
	}
	s.nodes[n.Name] = n
	s.reconcile(n, s.clock.Now())
}

// DeleteNode removes a node. Its points are removed with its metadata or age out.
func (s *Source) DeleteNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
	if t := s.targets[name]; t != nil {
		s.remove(t)
	}
}

// reconcile adds, updates or removes the target of a node. The caller holds s.mu.
func (s *Source) reconcile(n *Node, now time.Time) {
	selected := s.settings.NodeSelector.Matches(labels.Set(n.Labels))
	t := s.targets[n.Name]
	if t != nil && (!selected || t.uid != n.UID) {
		s.remove(t)
		t = nil
	}
	switch {
	case !selected:
	case t == nil:
		t = &target{name: n.Name, uid: n.UID, node: n}
		s.targets[n.Name] = t
		s.schedule(t, now)
	case !t.node.sameEndpoint(n):
		t.node = n
		t.connection.closeIdle()
		if t.timeouts > 0 && t.Queued() {
			// It may answer at the new address.
			s.unqueue(t)
			t.timeouts = 0
			s.schedule(t, now)
		}
	default:
		t.node = n
	}
}

// phaseIn returns when in an interval the node is scraped, which is the same in all replicas:
// clients whose requests alternate between them rarely see a sample go back.
func (t *target) phaseIn(interval time.Duration) time.Duration {
	return schedule.Phase(interval, string(t.uid), t.name)
}

func (s *Source) remove(t *target) {
	s.unqueue(t)
	delete(s.targets, t.name)
	t.removed = true
	if t.cancel != nil {
		t.cancel()
	}
	t.connection.closeIdle()
}
