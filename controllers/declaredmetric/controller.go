// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package declaredmetric writes the status of CustomMetrics and ExternalMetrics from the
// reports of the serving pods. Every few seconds it reads one report of each ready pod, for
// all metrics, and writes what changed: conditions at once, values at most once a minute.
package declaredmetric

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/crdready"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

const (
	// Name is the controller's name in logs.
	Name         = "declaredmetric"
	pollInterval = 3 * time.Second
)

// PodReader reads a serving pod's report of declared metrics, metric by metric; it returns
// false if the pod has none.
type PodReader interface {
	Declared(ctx context.Context, pod servingclient.Pod, visit func(v1alpha1.DeclaredHealth)) error
}

// Tokens returns the tokens that requests to pods carry.
type Tokens interface {
	Token(ctx context.Context, account client.ObjectKey) (string, error)
	Forget(account client.ObjectKey)
}

// Options are the dependencies of a Controller.
type Options struct {
	// Client reads MetricsBackends from a cache.
	Client client.Client
	// Live reads and watches both kinds of metrics. SetupWithManager sets it.
	Live      client.WithWatch
	Pods      PodReader
	Tokens    Tokens
	Directory *servingclient.Directory
	Clock     clock.WithTicker
}

// Controller writes the status of declared metrics. Its state may be lost. It is not safe for
// concurrent use.
type Controller struct {
	Options
	informers map[string]cache.SharedIndexInformer
	// written is when the status of each object was last written.
	written map[types.UID]times
	// missingSince is since when all pods of a backend have had no report.
	missingSince map[string]time.Time
}

// New returns a Controller.
func New(o Options) *Controller {
	c := &Controller{Options: o, written: map[types.UID]times{}, missingSince: map[string]time.Time{}}
	c.informers = map[string]cache.SharedIndexInformer{
		kindCustom:   c.newInformer(&v1alpha1.CustomMetric{}, &v1alpha1.CustomMetricList{}),
		kindExternal: c.newInformer(&v1alpha1.ExternalMetric{}, &v1alpha1.ExternalMetricList{}),
	}
	return c
}

// SetupWithManager adds the controller to the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	var err error
	c.Live, err = client.NewWithWatch(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make a client of declared metrics: %w", err)
	}
	if err := mgr.Add(c); err != nil {
		return fmt.Errorf("set up controller %s: %w", Name, err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *Controller) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns when ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("controller", Name)
	ctx = klog.NewContext(ctx, logger)
	if !crdready.Await(ctx, c.Client, c.Clock, &v1alpha1.CustomMetric{}, &v1alpha1.ExternalMetric{}) {
		return nil
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, informer := range c.informers {
		running.Go(func() { informer.RunWithContext(ctx) })
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil
		}
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

// Poll reads all reports once and writes the statuses that changed.
func (c *Controller) Poll(ctx context.Context) error {
	var metrics []*metric
	for _, kind := range []string{kindCustom, kindExternal} {
		metrics = append(metrics, listLimited(c.informers[kind])...)
	}
	c.forgetDeleted(metrics)
	if len(metrics) == 0 {
		countStates(nil)
		return nil
	}
	reports, err := c.readReports(ctx, metrics)
	if err != nil {
		return err
	}
	var changes []change
	for _, m := range metrics {
		r := reports[m.kind]
		switch {
		case m.unused && m.told:
			continue
		case m.unused:
			r = tooMany[m.kind]
		}
		if !r.usable {
			continue
		}
		if next, ok := c.changeOf(m, r); ok {
			changes = append(changes, next)
		}
	}
	countStates(metrics)
	return c.write(ctx, changes)
}

// The kinds of metrics, as in reports.
const (
	kindCustom   = "CustomMetric"
	kindExternal = "ExternalMetric"
)
