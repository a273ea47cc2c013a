// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// One request that times out changes no condition. A lasting failure is reported, and
// changes nothing else that is known: metrics-server does not have to serve v1.
func TestUnresponsiveEndpoint(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	r := fc.live()
	fc.scaleMetricsServer(1, v1beta1)
	mustReconcile(t, r)
	before := fc.backend().Status
	fc.other.failing["192.168.0.1:10250"] = errors.New("no answer within 5s")
	result, err := reconcileOnce(t, r)
	if err != nil || result.RequeueAfter > transientRecheck {
		t.Errorf("looks again after %s, error %v", result.RequeueAfter, err)
	}
	if diff := cmp.Diff(before, fc.backend().Status); diff != "" {
		t.Errorf("status (-before +after):\n%s", diff)
	}
	fc.clock.Step(servingGrace)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed)
	for _, kind := range []string{v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionAPIServicesRegistered, v1alpha1.ConditionAvailable} {
		fc.wantCondition(kind, metav1.ConditionTrue, "")
	}
	fc.wantRegistered("v1beta1")
	clear(fc.other.failing)
	fc.reconcileUntil(r, fc.isReady)
	if diff := cmp.Diff(before.APIServices, fc.backend().Status.APIServices); diff != "" {
		t.Errorf("versions (-before +after):\n%s", diff)
	}
}
