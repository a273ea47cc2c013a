// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
)

// settings are what a running pod takes from its MetricsBackend.
type settings struct {
	kubelet kubelet.Settings
	// maxAge is the age from which points are no longer served.
	maxAge time.Duration
	watch  watchSettings
}

// settingsFrom reads a spec, filling in defaults; an empty spec gives those that
// are in force until a MetricsBackend was read. It checks the whole spec: a
// manifest on disk did not pass through the CRD's schema, and the operator only
// reports what it finds by the same rules. The error names every field that
// cannot be used.
func settingsFrom(given *v1alpha1.MetricsBackendSpec) (settings, error) {
	spec := given.DeepCopy()
	if spec.ResourceMetrics == nil {
		spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{}
	}
	v1alpha1.SetDefaults(spec)
	if errs := v1alpha1.Validate(spec); len(errs) > 0 {
		return settings{}, errs.ToAggregate()
	}
	rm := spec.ResourceMetrics
	bodySize, err := rm.Scrape.MaxBodyBytes()
	if err != nil {
		return settings{}, fmt.Errorf("spec.resourceMetrics.scrape.maxBodySize %w", err)
	}
	selector := labels.Everything()
	if rm.Scrape.NodeSelector != nil {
		// A nil LabelSelector selects nothing; here it stands for all nodes.
		if selector, err = metav1.LabelSelectorAsSelector(rm.Scrape.NodeSelector); err != nil {
			return settings{}, fmt.Errorf("spec.resourceMetrics.scrape.nodeSelector: %w", err)
		}
	}
	return settings{
		maxAge: rm.MaxAge.Duration,
		watch:  watchSettingsFrom(&spec.Watch),
		kubelet: kubelet.Settings{
			Interval:      rm.Scrape.Interval.Duration,
			Timeout:       rm.Scrape.Timeout.Duration,
			MaxConcurrent: int(*rm.Scrape.MaxConcurrent),
			MaxBodySize:   bodySize,
			AddressTypes:  rm.Scrape.AddressTypes,
			Port:          ptr.Deref(rm.Scrape.Port, 0),
			NodeSelector:  selector,
			TLS:           rm.KubeletTLS.Mode,
			CABundle:      rm.KubeletTLS.CABundle,
		},
	}, nil
}
