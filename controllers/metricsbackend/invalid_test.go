// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// A spec that passes the CRD's schema and that serving refuses: it stalls before
// anything is made, and takes nothing away from a backend that works.
func TestSpecThatServingRefuses(t *testing.T) {
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
		t.Run(name+" at first", func(t *testing.T) {
			w := newWorld(t, newBackend(func(s *v1alpha1.MetricsBackendSpec) { tc.change(s.ResourceMetrics) }))
			r := w.reconciler(interceptor.Funcs{})
			w.settle(r, w.isRefused)
			if len(w.pods()) > 0 || w.ours() > 0 {
				t.Errorf("%d pods, %d APIServices while the spec is refused", len(w.pods()), w.ours())
			}
			w.explainsRefusal(tc.message)
			w.change(func(s *v1alpha1.MetricsBackendSpec) {
				s.ResourceMetrics.KubeletTLS.CABundle, s.ResourceMetrics.Scrape.NodeSelector = nil, nil
			})
			w.settle(r, w.isReady)
		})
		t.Run(name+" later", func(t *testing.T) {
			w := newWorld(t, newBackend())
			r := w.reconciler(interceptor.Funcs{})
			w.settle(r, w.isReady)
			pods, registered := len(w.pods()), w.ours()
			w.change(func(s *v1alpha1.MetricsBackendSpec) { tc.change(s.ResourceMetrics) })
			w.settle(r, w.isRefused)
			w.explainsRefusal(tc.message)
			if len(w.pods()) != pods || w.ours() != registered {
				t.Errorf("%d pods, %d APIServices, want %d, %d as before", len(w.pods()), w.ours(), pods, registered)
			}
			if c := w.condition(v1alpha1.ConditionAvailable); c.Status != metav1.ConditionTrue {
				t.Errorf("Available is %s: %s", c.Status, c.Message)
			}
		})
	}
}

func (w *world) isRefused() bool {
	return w.condition(v1alpha1.ConditionStalled).Reason == v1alpha1.ReasonInvalid
}

func (w *world) explainsRefusal(field string) {
	w.t.Helper()
	message := w.condition(v1alpha1.ConditionReady).Message
	for _, part := range []string{"serving cannot use the spec", "kubectl edit metricsbackend " + backendName, field} {
		if !strings.Contains(message, part) {
			w.t.Errorf("message %q, want %q in it", message, part)
		}
	}
}
