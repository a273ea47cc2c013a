// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the configuration of serving: a MetricsBackend, the metrics and
// policies declared beside it, and the Secrets of its sources, from the cluster or a file.
package config

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricset"
)

// MetricSet has the metrics of this package.
var MetricSet = metricset.New("metrics_backend_config_")

var (
	reloads = MetricSet.CounterVec("reloads_total",
		"Number of times that a MetricsBackend was read, by result. After an error the previous settings stay.", "result")

	reloadSuccessful = MetricSet.Gauge("last_reload_successful",
		"0 when the newest MetricsBackend that was read could not be used, otherwise 1.")
)

// Target is what the configuration is applied to.
type Target struct {
	// Settings applies all of the settings, or none if it returns an error.
	Settings func(context.Context, Settings) error
	// Metrics and Policies replace the declared metrics and policies. The objects are
	// ordered by namespace and name and must not be changed.
	Metrics  func([]*v1alpha1.CustomMetric, []*v1alpha1.ExternalMetric)
	Policies func(context.Context, []*v1alpha1.ExternalMetricsPolicy)
}

// declare replaces the declared metrics and policies.
func (t *Target) declare(ctx context.Context, d *declarations) {
	t.Policies(ctx, d.policies)
	t.Metrics(d.custom, d.external)
}

// Initial is the configuration at the start, before the first request to kube-apiserver.
type Initial struct {
	Settings     Settings
	declarations declarations
	// file is nil without --backend-file.
	file *fileWatcher
}

// Load returns the configuration in a file (--backend-file), or the defaults if path is
// empty. With these nothing is scraped until a MetricsBackend is applied, or is known not to
// exist, or ApplyDefaults is called.
func Load(path string) (*Initial, error) {
	if path == "" {
		s, err := SettingsFrom(&v1alpha1.MetricsBackendSpec{})
		return &Initial{Settings: s.withoutResourceMetrics()}, err
	}
	file := &fileWatcher{path: path}
	s, d, err := file.load()
	return &Initial{Settings: s, declarations: d, file: file}, err
}

// Watcher keeps a Target up to date with the configuration. Settings that cannot be used
// change nothing: the last good ones stay.
type Watcher struct {
	// Run watches until the context ends.
	Run func(context.Context)
	// BackendApplied and DeclaredApplied return nil once the MetricsBackend, and the metrics
	// and policies declared beside it, are applied, or are known not to exist, and otherwise
	// what is missing.
	BackendApplied, DeclaredApplied func() error

	target Target

	mu         sync.Mutex
	generation int64
	lastError  string
	// applied is true once settings or the defaults were applied.
	applied bool
	// spec was applied last. retained are the API groups whose sections are of a spec before, and sources
	// those that were removed with a section.
	spec     v1alpha1.MetricsBackendSpec
	retained []string
	sources  []v1alpha1.SourceSpec
}

// NewWatcher watches the file of initial, or the named MetricsBackend in the cluster. With
// neither, the initial settings stay.
func NewWatcher(client *rest.Config, backend string, initial *Initial, target Target) (*Watcher, error) {
	reloadSuccessful.Set(1)
	applied := func() error { return nil }
	w := &Watcher{target: target, BackendApplied: applied, DeclaredApplied: applied}
	switch {
	case initial.file != nil:
		w.watchFile(initial)
	case backend != "":
		c, err := newClusterWatcher(client, backend, w.apply, w.ApplyDefaults, target)
		if err != nil {
			return nil, err
		}
		w.Run, w.BackendApplied, w.DeclaredApplied = c.run, c.backend.hasApplied, c.declaredApplied
	default:
		w.Run = func(ctx context.Context) {
			w.ApplyDefaults(ctx)
			target.declare(ctx, &declarations{})
			klog.FromContext(ctx).Info("Neither --backend nor --backend-file is given; the default settings apply")
		}
	}
	return w, nil
}

// watchFile also applies the initial content of the file.
func (w *Watcher) watchFile(initial *Initial) {
	var applied atomic.Bool
	w.DeclaredApplied = func() error {
		if !applied.Load() {
			return errors.New("the file is not applied yet")
		}
		return nil
	}
	initial.file.apply = func(ctx context.Context, m *manifest) {
		w.apply(ctx, "file", m.backend)
		w.target.declare(ctx, &m.declarations)
	}
	w.Run = func(ctx context.Context) {
		w.mu.Lock()
		w.applied = true
		if err := w.target.Settings(ctx, initial.Settings); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot apply the settings of the file")
		}
		w.mu.Unlock()
		w.target.declare(ctx, &initial.declarations)
		applied.Store(true)
		initial.file.run(ctx)
	}
}

// ObservedGeneration returns the generation of the MetricsBackend whose settings are
// applied; 0 while these are the defaults.
func (w *Watcher) ObservedGeneration() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.generation
}

// ApplyDefaults applies the default settings, unless others were applied before: without its
// MetricsBackend, resource metrics are all that a pod can serve.
func (w *Watcher) ApplyDefaults(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applyDefaults(ctx)
}

// applyDefaults is ApplyDefaults with mu held.
func (w *Watcher) applyDefaults(ctx context.Context) {
	if w.applied {
		return
	}
	s, err := SettingsFrom(&v1alpha1.MetricsBackendSpec{})
	if err == nil {
		err = w.target.Settings(ctx, s)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot apply the default settings")
		return
	}
	w.applied = true
}

// apply applies the settings of a MetricsBackend that was read from origin. The same error
// is logged once.
func (w *Watcher) apply(ctx context.Context, origin string, backend *v1alpha1.MetricsBackend) {
	logger := klog.FromContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	current := backend.DeepCopy()
	retained, sources := w.retainSections(current)
	s, err := settingsOf(current)
	if err == nil {
		err = w.target.Settings(ctx, s)
	}
	if err != nil {
		reloads.WithLabelValues("error").Inc()
		reloadSuccessful.Set(0)
		if err.Error() != w.lastError {
			logger.Error(err, "Cannot use the MetricsBackend; the previous settings stay, or the defaults apply",
				"origin", origin, "metricsBackend", klog.KObj(backend), "generation", backend.Generation)
			w.lastError = err.Error()
		}
		w.applyDefaults(ctx)
		return
	}
	reloads.WithLabelValues("success").Inc()
	reloadSuccessful.Set(1)
	w.lastError, w.generation, w.applied = "", backend.Generation, true
	w.spec, w.retained, w.sources = current.Spec, retained, sources
	logger.Info("Applied the settings of the MetricsBackend",
		"origin", origin, "metricsBackend", klog.KObj(backend), "generation", backend.Generation)
}

// retainSections completes the spec by those sections of the one before that it does not have, until the APIServices of their
// groups are removed; and by the sources that were removed together with a section, not by those that were removed later. It
// returns these groups and sources.
func (w *Watcher) retainSections(backend *v1alpha1.MetricsBackend) (groups []string, sources []v1alpha1.SourceSpec) {
	spec := &backend.Spec
	groups, sources = backend.RetainedGroups(), w.sources
	for _, group := range groups {
		switch group {
		case "metrics.k8s.io":
			spec.ResourceMetrics = w.spec.ResourceMetrics
		case "custom.metrics.k8s.io":
			spec.CustomMetrics = w.spec.CustomMetrics
		case "external.metrics.k8s.io":
			spec.ExternalMetrics = w.spec.ExternalMetrics
		}
		if !slices.Contains(w.retained, group) {
			sources = w.spec.Sources
		}
	}
	sources = slices.DeleteFunc(slices.Clone(sources), func(source v1alpha1.SourceSpec) bool {
		return slices.ContainsFunc(spec.Sources, func(s v1alpha1.SourceSpec) bool { return s.Name == source.Name })
	})
	if len(groups) > 0 {
		spec.Sources = append(spec.Sources, sources...)
	}
	return groups, sources
}
