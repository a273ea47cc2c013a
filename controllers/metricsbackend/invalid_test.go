// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// A spec that the CRD's schema accepts and serving rejects breaks nothing of a backend
// that works.
func TestSpecThatServingRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change  func(*v1alpha1.ResourceMetricsSpec)
		message string
	}{
		"CA bundle with a certificate that is none": {
			change: func(rm *v1alpha1.ResourceMetricsSpec) {
				rm.KubeletTLS.CABundle = []byte("-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n")
			},
			message: "spec.resourceMetrics.kubeletTLS.caBundle",
		},
		"label that cannot be": {
			change: func(rm *v1alpha1.ResourceMetricsSpec) {
				rm.Scrape.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c d"}}
			},
			message: "spec.resourceMetrics.scrape.nodeSelector.matchLabels",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc, r := ready(t)
			pods, registered := len(fc.pods()), fc.ownedCount()
			fc.change(func(s *v1alpha1.MetricsBackendSpec) { tc.change(s.ResourceMetrics) })
			fc.reconcileUntil(r, func() bool { return fc.isStalledBy(v1alpha1.ReasonInvalid) })
			fc.wantCondition(v1alpha1.ConditionReady, "", "", "serving cannot use the spec", "kubectl edit metricsbackend "+backendName, tc.message)
			if len(fc.pods()) != pods || fc.ownedCount() != registered {
				t.Errorf("%d pods, %d APIServices, want %d, %d as before", len(fc.pods()), fc.ownedCount(), pods, registered)
			}
			fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
		})
	}
}
