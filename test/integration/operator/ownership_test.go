// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// An implementation of someone else: its APIService kept, moved to our pods, and
// back. Its clients notice nothing.
func TestExistingAndServing(t *testing.T) {
	suite := take(t)
	stock := installMetricsServer(t, suite)
	load := startRequests(t, suite, "v1beta1")
	guard := startGuard(t, suite)
	createBackend(t, suite, newBackend("cluster", adopting(v1alpha1.AdoptionAlways), existing))
	backend := waitReady(t, suite, "cluster")
	checkDiscovered(t, suite, "with metrics-server", "v1beta1")
	if got := backend.Status.RegisteredVersions; got != "v1beta1" {
		t.Errorf("registeredVersions %q", got)
	}
	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing = nil })
	waitReady(t, suite, "cluster")
	if service := waitPointsTo(t, suite, "v1beta1", ourName); service.UID != stock.UID || service.Spec.InsecureSkipTLSVerify {
		t.Errorf("pointed to our pods: %+v", service)
	}
	waitPointsTo(t, suite, "v1", ourName)
	changeBackend(t, suite, "cluster", existing)
	waitReady(t, suite, "cluster")
	if service := waitPointsTo(t, suite, "v1beta1", theirName); service.UID != stock.UID || len(service.Spec.CABundle) > 0 {
		t.Errorf("pointed back: %+v", service)
	}
	checkDiscovered(t, suite, "with metrics-server again", "v1beta1")
	var deployments appsv1.DeploymentList
	if err := suite.admin.List(t.Context(), &deployments, owned()); err != nil || len(deployments.Items) > 0 {
		t.Errorf("%d Deployments of ours, %v", len(deployments.Items), err)
	}
	deleteBackend(t, suite, "cluster")
	load.stop(t)
	guard.stop(t)
	back, err := getAPIService(t.Context(), suite, "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stock.Spec, back.Spec); diff != "" {
		t.Errorf("spec (-stock +handed back):\n%s", diff)
	}
	if diff := cmp.Diff(stock.Labels, back.Labels); diff != "" || len(back.Annotations) > 0 || back.UID != stock.UID {
		t.Errorf("annotations %v, labels (-stock +handed back):\n%s", back.Annotations, diff)
	}
	if _, err := getAPIService(t.Context(), suite, "v1"); !apierrors.IsNotFound(err) {
		t.Errorf("v1 is still registered: %v", err)
	}
}

// The younger backend waits with everything but its registration, and takes over
// in place: no request fails.
func TestTwoBackends(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("elder"))
	waitReady(t, suite, "elder")
	createBackend(t, suite, newBackend("cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Namespace = otherNamespace }))
	waiting := waitCondition(t, suite, "cluster", v1alpha1.ConditionServingReady, metav1.ConditionTrue, "")
	waitCondition(t, suite, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConflict)
	if c := condition(waiting, v1alpha1.ConditionReady); !strings.Contains(c.Message, `MetricsBackend "elder" is older and claims v1.metrics.k8s.io`) {
		t.Errorf("Ready is %+v", c)
	}
	service := waitPointsTo(t, suite, "v1", systemNamespace+"/metrics-serving-elder")
	load := startRequests(t, suite, "v1", "v1beta1")
	deleteBackend(t, suite, "elder")
	waitReady(t, suite, "cluster")
	load.stop(t)
	if successor := waitPointsTo(t, suite, "v1", otherNamespace+"/metrics-serving-cluster"); successor.UID != service.UID || successor.Labels[v1alpha1.LabelBackend] != "cluster" {
		t.Errorf("v1 was made anew, or is whose: %+v", successor.ObjectMeta)
	}
}
