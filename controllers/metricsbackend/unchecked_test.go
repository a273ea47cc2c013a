// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// An APIService that the aggregator has not looked at yet is no failure: adding a
// version to a backend that works warns of nothing, and is never Ready=False.
func TestNewVersionIsNoFailure(t *testing.T) {
	w := newWorld(t, newBackend(onlyV1beta1))
	w.settle(w.reconciler(interceptor.Funcs{}), w.isReady)
	recorder := events.NewFakeRecorder(100)
	r := w.reconciler(interceptor.Funcs{})
	r.Events = recorder
	w.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{"v1", "v1beta1"}
	})
	for range maxRounds {
		mustReconcile(t, r)
		if c := w.condition(v1alpha1.ConditionReady); c.Status == metav1.ConditionFalse {
			t.Errorf("Ready is %+v", c)
		}
		if w.isRegistered(v1) {
			// kube-apiserver's controller takes its time.
			mustReconcile(t, r)
			c := w.condition(v1alpha1.ConditionAvailable)
			if c.Reason != v1alpha1.ReasonProgressing || !strings.Contains(c.Message, "v1.metrics.k8s.io is registered; kube-apiserver has not checked it yet") {
				t.Errorf("Available is %+v", c)
			}
			break
		}
		w.step()
	}
	w.settle(r, w.isReady)
	close(recorder.Events)
	for e := range recorder.Events {
		if strings.HasPrefix(e, "Warning") {
			t.Error(e)
		}
	}
}
