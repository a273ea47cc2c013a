// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package declaredmetric writes the status of CustomMetrics and ExternalMetrics from the
// reports of the serving pods. Every few seconds it reads one report of each ready pod, for
// all metrics, and writes what changed: conditions at once, values at most once a minute.
package declaredmetric

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
	Name         = "declaredmetric"
	pollInterval = 3 * time.Second
)

// PodReader reads a serving pod's report of declared metrics, metric by metric; it returns
// false if the pod has none.
type PodReader interface {
	Declared(ctx context.Context, pod servingclient.Pod, visit func(v1alpha1.DeclaredHealth)) (bool, error)
}

// Tokens returns the tokens that requests to pods carry.
type Tokens interface {
	Token(ctx context.Context, account client.ObjectKey) (string, error)
	Forget(account client.ObjectKey)
}

// Options are the dependencies of a Controller.
type Options struct {
	// Client reads MetricsBackends and both kinds of metrics from a cache.
	Client client.Client
	// Cache provides informers, since the CRDs may be missing.
	Cache     cache.Informers
	Pods      PodReader
	Tokens    Tokens
	Directory *servingclient.Directory
	Clock     clock.WithTicker
}

// Controller writes the status of declared metrics. Its state may be lost. It is not safe for
// concurrent use.
type Controller struct {
	Options
	// written is when the status of each object was last written.
	written map[types.UID]times
	// missingSince is since when all pods of a backend have had no report.
	missingSince map[string]time.Time
}

// New returns a Controller.
func New(o Options) *Controller {
	return &Controller{Options: o, written: map[types.UID]times{}, missingSince: map[string]time.Time{}}
}

// SetupWithManager adds the controller to the manager.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
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

// Poll reads all reports once and writes the statuses that changed.
func (c *Controller) Poll(ctx context.Context) error {
	metrics, err := c.declared(ctx)
	if err != nil {
		return err
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
		if m.unused {
			r = tooMany(m.kind)
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
		all = append(all, &metric{kind: kindCustom, object: &custom.Items[i], status: &custom.Items[i].Status})
	}
	markUnused(all)
	customs := len(all)
	for i := range external.Items {
		all = append(all, &metric{kind: kindExternal, object: &external.Items[i], status: &external.Items[i].Status})
	}
	markUnused(all[customs:])
	return all, nil
}

// markUnused marks the metrics beyond the limits, all of one kind.
func markUnused(metrics []*metric) {
	byObject := make(map[v1alpha1.LimitedMetric]*metric, len(metrics))
	objects := make([]v1alpha1.LimitedMetric, len(metrics))
	for i, m := range metrics {
		byObject[m.object], objects[i] = m, m.object
	}
	_, rest := v1alpha1.LimitMetrics(objects)
	for _, o := range rest {
		byObject[o].unused = true
	}
}

// The kinds of metrics, as in reports.
const (
	kindCustom   = "CustomMetric"
	kindExternal = "ExternalMetric"
)

// object is a *v1alpha1.CustomMetric or a *v1alpha1.ExternalMetric.
type object interface {
	client.Object
	v1alpha1.LimitedMetric
}

// metric is a CustomMetric or an ExternalMetric.
type metric struct {
	kind   string
	object object
	status *v1alpha1.DeclaredMetricStatus
	// unused is set for a metric beyond the limits.
	unused bool
}
