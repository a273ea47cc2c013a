// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// An APIService that the aggregator has not checked yet is no failure: adding a version
// to a working backend causes no warning, and no Ready=False.
func TestNewVersionIsNoFailure(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(onlyV1beta1))
	fc.reconcileUntil(fc.reconciler(), fc.isReady)
	recorder := events.NewFakeRecorder(100)
	r := fc.reconciler()
	r.Events = recorder
	fc.change(bothVersions)
	for range maxRounds {
		mustReconcile(t, r)
		if c := fc.condition(v1alpha1.ConditionReady); c.Status == metav1.ConditionFalse {
			t.Errorf("Ready is %+v", c)
		}
		if fc.isRegistered(v1) {
			// kube-apiserver's controller takes its time.
			mustReconcile(t, r)
			fc.wantCondition(v1alpha1.ConditionAvailable, "", v1alpha1.ReasonProgressing, "v1.metrics.k8s.io is registered; kube-apiserver has not checked it yet")
			break
		}
		fc.step()
	}
	fc.reconcileUntil(r, fc.isReady)
	close(recorder.Events)
	for e := range recorder.Events {
		if strings.HasPrefix(e, "Warning") {
			t.Error(e)
		}
	}
}
