// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// stallTimeout is how long a watcher may accept no data before its watch is ended: several
// times the length of a garbage collection pause or a slow network, and short against the
// age of the data that it would then get.
const stallTimeout = time.Minute

// Settings are what a running pod takes from its MetricsBackend.
type Settings struct {
	Kubelet kubelet.Settings
	// MaxAge is the age from which points are no longer served.
	MaxAge time.Duration
	// ResourceMetrics is false if metrics.k8s.io is not served: then no kubelet is scraped.
	ResourceMetrics bool
	Watch           WatchSettings
	// Spec has its defaults.
	Spec *v1alpha1.MetricsBackendSpec
}

// WatchSettings are the settings of watches of all APIs.
type WatchSettings struct {
	Enabled bool
	Limits  stream.Limits
	Stream  stream.Settings
}

// settingsOf returns the settings of a MetricsBackend.
func settingsOf(backend *v1alpha1.MetricsBackend) (Settings, error) {
	s, err := SettingsFrom(&backend.Spec)
	s.Kubelet.Verified = backend.Status.KubeletsVerified
	if err == nil && !backend.Serves("metrics.k8s.io") {
		s = s.withoutResourceMetrics()
	}
	return s, err
}

// settingsChanged reports whether the settings may differ between two states of a MetricsBackend.
func settingsChanged(before, after *v1alpha1.MetricsBackend) bool {
	return before.UID != after.UID || before.Generation != after.Generation ||
		before.Status.KubeletsVerified != after.Status.KubeletsVerified || !slices.Equal(before.RetainedGroups(), after.RetainedGroups())
}

// withoutResourceMetrics returns the settings with nothing to scrape.
func (s Settings) withoutResourceMetrics() Settings {
	s.ResourceMetrics = false
	s.Kubelet.NodeSelector = labels.Nothing()
	return s
}

// SettingsFrom returns the settings of a spec, with defaults; those of an empty spec apply
// until a MetricsBackend is read, and verify kubelets. The error names every field that cannot be used. An invalid source,
// rule or route is reported by the component that uses it, and does not affect anything else.
func SettingsFrom(given *v1alpha1.MetricsBackendSpec) (Settings, error) {
	spec := given.DeepCopy()
	if spec.ResourceMetrics == nil {
		// Without the spec or the status that says so, nothing may be pinned.
		spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{KubeletTLS: v1alpha1.KubeletTLSSpec{Mode: v1alpha1.KubeletTLSVerify}}
	}
	v1alpha1.SetDefaults(spec)
	if errs := v1alpha1.Validate(spec); len(errs) > 0 {
		return Settings{}, errs.ToAggregate()
	}
	rm := spec.ResourceMetrics
	bodySize, err := resource.ParseQuantity(rm.Scrape.MaxResponseSize)
	if err != nil {
		return Settings{}, fmt.Errorf("spec.resourceMetrics.scrape.maxResponseSize: %w", err)
	}
	selector := labels.Everything()
	if rm.Scrape.NodeSelector != nil {
		// A nil LabelSelector selects nothing; here it means all nodes.
		if selector, err = metav1.LabelSelectorAsSelector(rm.Scrape.NodeSelector); err != nil {
			return Settings{}, fmt.Errorf("spec.resourceMetrics.scrape.nodeSelector: %w", err)
		}
	}
	if rm.Rules != nil {
		// Resource metrics come from a source instead. While no rules can be used, kubelets
		// are still scraped: a typo must not leave every autoscaler without CPU and memory.
		if usable, _ := rules.CompileResourceRules(rm.Rules, spec.Sources); usable != nil {
			selector = labels.Nothing()
		}
	}
	return Settings{
		Spec:            spec,
		MaxAge:          rm.MaxSampleAge.Duration,
		ResourceMetrics: true,
		Watch:           watchSettingsFrom(&spec.Watch),
		Kubelet: kubelet.Settings{
			Interval:      rm.Scrape.Interval.Duration,
			Timeout:       rm.Scrape.Timeout.Duration,
			MaxConcurrent: int(*rm.Scrape.MaxConcurrent),
			MaxBodySize:   bodySize.Value(),
			AddressTypes:  rm.Scrape.AddressTypes,
			Port:          ptr.Deref(rm.Scrape.Port, 0),
			NodeSelector:  selector,
			TLS:           rm.KubeletTLS.Mode,
			CABundle:      rm.KubeletTLS.CABundle,
		},
	}, nil
}

func watchSettingsFrom(spec *v1alpha1.WatchSpec) WatchSettings {
	return WatchSettings{
		Enabled: spec.Mode == v1alpha1.WatchEnabled,
		Limits: stream.Limits{
			Connections:    int(*spec.MaxWatches),
			PerUser:        int(*spec.MaxWatchesPerUser),
			OpensPerSecond: float64(*spec.MaxOpensPerSecondPerUser),
			// After a restart of a pod or a client, a user may open all of its watches at once.
			OpensBurst: int(max(*spec.MaxWatchesPerUser, *spec.MaxOpensPerSecondPerUser)),
		},
		Stream: stream.Settings{
			BookmarkInterval: spec.BookmarkInterval.Duration,
			MaxAge:           spec.MaxDuration.Duration,
			StallTimeout:     stallTimeout,
		},
	}
}
