// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package declaredmetric tells in the status of each CustomMetric and
// ExternalMetric how the serving pods see it. Every few seconds it asks each
// ready serving pod once, for all metrics together, and writes what changed:
// conditions at once, values at most once a minute.
package declaredmetric

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/crdready"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

const (
	// Name is the controller's name in logs.
	Name = "declaredmetric"
	// pollInterval is between two looks at the pods.
	pollInterval = 3 * time.Second
)

// Asker asks a serving pod how declared metrics do; nil when it cannot tell.
type Asker interface {
	Declared(ctx context.Context, pod servingclient.Pod) (*v1alpha1.DeclaredReport, error)
}

// Tokens mints tokens of the accounts with which pods are asked.
type Tokens interface {
	Token(ctx context.Context, account client.ObjectKey) (string, error)
	Forget(account client.ObjectKey)
}

// Directory knows the ready pods of each MetricsBackend.
type Directory interface {
	Pods(backend string) ([]servingclient.Entry, bool)
}

// Options are what a Controller works with.
type Options struct {
	// Client reads from a cache that has MetricsBackends and both kinds of metrics,
	// and writes their status.
	Client client.Client
	// Cache is asked for informers, since the CRDs may be missing.
	Cache     cache.Informers
	Pods      Asker
	Tokens    Tokens
	Directory Directory
	Clock     clock.WithTicker
}

// Controller writes the status of declared metrics. It keeps nothing that it could
// not lose.
type Controller struct {
	Options
	log     *writeLog
	silence *silence
}

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{Options: o, log: newWriteLog(), silence: newSilence()}
}

// SetupWithManager starts the controller with the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	if err := mgr.Add(c); err != nil {
		return fmt.Errorf("set up controller %s: %w", Name, err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: one operator writes.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns when ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("controller", Name)
	ctx = klog.NewContext(ctx, logger)
	if !crdready.Await(ctx, c.Cache, c.Clock, &v1alpha1.CustomMetric{}, &v1alpha1.ExternalMetric{}) {
		return nil
	}
	ticker := c.Clock.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if err := c.Poll(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Cannot bring the status of declared metrics up to date, retrying")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Poll brings every status up to date, once.
func (c *Controller) Poll(ctx context.Context) error {
	metrics, err := c.declared(ctx)
	if err != nil {
		return err
	}
	c.log.keep(metrics)
	if len(metrics) == 0 {
		// Without any metric no pod is asked.
		countStates(nil)
		return nil
	}
	views, err := c.look(ctx, metrics)
	if err != nil {
		return err
	}
	var changes []change
	for _, m := range metrics {
		view := views[m.kind]
		if !view.tells {
			continue
		}
		if next, ok := c.changeOf(m, view); ok {
			changes = append(changes, next)
		}
	}
	countStates(metrics)
	return c.write(ctx, changes)
}

// declared returns all metrics of both kinds.
func (c *Controller) declared(ctx context.Context) ([]*metric, error) {
	var custom v1alpha1.CustomMetricList
	if err := c.Client.List(ctx, &custom); err != nil {
		return nil, fmt.Errorf("list CustomMetrics: %w", err)
	}
	var external v1alpha1.ExternalMetricList
	if err := c.Client.List(ctx, &external); err != nil {
		return nil, fmt.Errorf("list ExternalMetrics: %w", err)
	}
	var all []*metric
	for i := range custom.Items {
		all = append(all, &metric{kindCustom, &custom.Items[i], &custom.Items[i].Status})
	}
	for i := range external.Items {
		all = append(all, &metric{kindExternal, &external.Items[i], &external.Items[i].Status})
	}
	return all, nil
}

// The kinds, as reports name them.
const (
	kindCustom   = "CustomMetric"
	kindExternal = "ExternalMetric"
)

// metric is a CustomMetric or an ExternalMetric, as it was read.
type metric struct {
	kind   string
	object client.Object
	status *v1alpha1.DeclaredMetricStatus
}

// silence is since when no pod of a backend has told anything.
type silence struct {
	mu    sync.Mutex
	since map[string]time.Time
}

func newSilence() *silence { return &silence{since: map[string]time.Time{}} }

// lasted notes whether a backend is silent, and returns for how long.
func (s *silence) lasted(backend string, silent bool, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !silent {
		delete(s.since, backend)
		return 0
	}
	if _, ok := s.since[backend]; !ok {
		s.since[backend] = now
	}
	return now.Sub(s.since[backend])
}
