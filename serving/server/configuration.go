// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
)

// kubeletSettings takes new settings of the scrapes.
type kubeletSettings interface {
	Apply(kubelet.Settings) error
}

// pointAge takes the age from which points are no longer served.
type pointAge interface {
	SetMaxAge(time.Duration)
}

// watchTarget takes how the APIs are watched.
type watchTarget interface {
	Apply(watchSettings)
}

// valueTarget takes what custom and external metrics are made of.
type valueTarget interface {
	apply(ctx context.Context, spec *v1alpha1.MetricsBackendSpec, invalid field.ErrorList)
	// ruled says that resource rules are in force.
	ruled() bool
}

// configuration is what is in force of the MetricsBackend. What cannot be used
// changes nothing: the last good settings stay.
type configuration struct {
	source  kubeletSettings
	store   pointAge
	watches watchTarget
	values  valueTarget

	mu         sync.Mutex
	generation int64
	lastError  string
}

// apply puts a MetricsBackend's settings into force. origin says where the
// object was read, for the log.
func (c *configuration) apply(ctx context.Context, origin string, backend *v1alpha1.MetricsBackend) {
	logger := klog.FromContext(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.put(ctx, &backend.Spec); err != nil {
		reloads.WithLabelValues(resultError).Inc()
		reloadSuccessful.Set(0)
		if err.Error() != c.lastError {
			logger.Error(err, "Cannot use the MetricsBackend; the settings before it stay in force",
				"origin", origin, "metricsBackend", klog.KObj(backend), "generation", backend.Generation)
			c.lastError = err.Error()
		}
		return
	}
	reloads.WithLabelValues(resultSuccess).Inc()
	reloadSuccessful.Set(1)
	c.lastError = ""
	c.generation = backend.Generation
	logger.Info("The MetricsBackend's settings are in force",
		"origin", origin, "metricsBackend", klog.KObj(backend), "generation", backend.Generation)
}

func (c *configuration) put(ctx context.Context, spec *v1alpha1.MetricsBackendSpec) error {
	s, err := settingsFrom(spec)
	if err != nil {
		return err
	}
	if spec.ResourceMetrics != nil && spec.ResourceMetrics.Rules != nil && c.values.ruled() {
		// Rules that cannot be used leave those before in force.
		s.kubelet.NodeSelector = labels.Nothing()
	}
	if err := c.source.Apply(s.kubelet); err != nil {
		return fmt.Errorf("change how kubelets are asked: %w", err)
	}
	// From here on nothing can fail: settings are in force all or not at all.
	c.store.SetMaxAge(s.maxAge)
	c.watches.Apply(s.watch)
	c.values.apply(ctx, s.spec, s.invalid)
	return nil
}

// observedGeneration is that of the MetricsBackend whose settings are in force;
// 0 while these are the defaults.
func (c *configuration) observedGeneration() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}
