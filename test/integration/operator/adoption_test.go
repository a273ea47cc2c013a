// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// kube-apiserver reaches metrics-server and not our pods, which the operator reaches:
// metrics-server's APIService is not touched, no request fails, and the takeover follows
// once the way is open.
//
// Packets are dropped, as by the firewalls of managed clusters. Connections are refused in
// test/e2e.
func TestAdoptionOfUnreachablePods(t *testing.T) {
	suite := take(t)
	installMetricsServer(t, suite)
	before, err := getAPIService(t.Context(), suite, "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { suite.egress.closeTo(none) })
	suite.egress.dropTo(suite.pods.isServing)
	load := startRequests(t, suite, "v1beta1")
	createBackend(t, suite, newBackend("cluster", adopting(v1alpha1.AdoptionAlways)))
	backend := waitCondition(t, suite, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodsUnreachable)
	message := condition(backend, v1alpha1.ConditionStalled).Message
	for _, part := range []string{"kube-apiserver does not reach the pods of Service " + ourName, "kube-apiserver must be able to open TCP connections to port"} {
		if !strings.Contains(message, part) {
			t.Errorf("Stalled says %q, want %q", message, part)
		}
	}
	after, err := getAPIService(t.Context(), suite, "v1beta1")
	if err != nil || after.ResourceVersion != before.ResourceVersion || after.UID != before.UID {
		t.Errorf("metrics-server's APIService was written, %v: %+v", err, after)
	}
	if err := suite.admin.Get(t.Context(), client.ObjectKey{Name: "v1.metrics.k8s.io"}, &apiregistrationv1.APIService{}); !apierrors.IsNotFound(err) {
		t.Errorf("v1 is registered: %v", err)
	}
	suite.egress.closeTo(none)
	waitPointsTo(t, suite, "v1beta1", ourName)
	waitReady(t, suite, "cluster")
	load.stop(t)
	noCanary(t, suite)
}

// noCanary checks that the canary API is not registered.
func noCanary(t *testing.T, suite *controlPlane) {
	t.Helper()
	key := client.ObjectKey{Name: v1alpha1.CanaryVersion + "." + v1alpha1.CanaryGroup}
	if err := suite.admin.Get(t.Context(), key, &apiregistrationv1.APIService{}); !apierrors.IsNotFound(err) {
		t.Errorf("the canary API is registered: %v", err)
	}
}

// The way to our pods is closed between the canary API and the takeover: metrics answer
// again within half a minute, from metrics-server.
//
// Connections are refused. If packets were dropped just then, kube-apiserver might wait for
// the OpenAPI document of our pods, for a minute, before it follows the APIService: its
// aggregator (pkg/controllers/openapi) updates all with one lock.
func TestAdoptionReverted(t *testing.T) {
	suite := take(t)
	installMetricsServer(t, suite)
	core, err := kubernetes.NewForConfig(suite.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { suite.egress.closeTo(none) })
	live, err := suite.admin.Watch(t.Context(), &apiregistrationv1.APIServiceList{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(live.Stop)
	closed := make(chan time.Time, 1)
	go func() {
		for event := range live.ResultChan() {
			service, ok := event.Object.(*apiregistrationv1.APIService)
			if ok && service.Name == "v1beta1.metrics.k8s.io" && service.Spec.Service != nil && strings.HasSuffix(ourName, "/"+service.Spec.Service.Name) {
				suite.egress.closeTo(suite.pods.isServing)
				closed <- time.Now()
				return
			}
		}
	}()
	createBackend(t, suite, newBackend("cluster", adopting(v1alpha1.AdoptionAlways)))
	var at time.Time
	outcome.Eventually(t, patience, "v1beta1 is taken over, and the way closed", func(context.Context) error {
		select {
		case at = <-closed:
			return nil
		default:
			return fmt.Errorf("%s", show(getBackend(t, suite, "cluster")))
		}
	})
	backend := waitCondition(t, suite, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonAdoptionReverted)
	waitPointsTo(t, suite, "v1beta1", theirName)
	outcome.Eventually(t, patience, "metrics answer again", func(ctx context.Context) error {
		// One that kube-apiserver sent to our pods just before waits for their answer.
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return core.RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").Do(ctx).Error()
	})
	message := condition(backend, v1alpha1.ConditionStalled).Message
	took := time.Since(at).Round(100 * time.Millisecond)
	t.Logf("metrics answer again after %s; Stalled says: %s", took, message)
	outcome.Measure(t, "metrics answer again after a takeover that fails", took, 30*time.Second)
	if want := "kube-apiserver must be able to open TCP connections to port"; !strings.Contains(message, want) {
		t.Errorf("Stalled says %q, want %q", message, want)
	}
	if err := suite.admin.Get(t.Context(), client.ObjectKey{Name: "v1.metrics.k8s.io"}, &apiregistrationv1.APIService{}); !apierrors.IsNotFound(err) {
		t.Errorf("v1 is registered: %v", err)
	}
	noCanary(t, suite)
	// A change of the spec is tried at once.
	suite.egress.closeTo(none)
	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.MaxSampleAge = &metav1.Duration{Duration: 2 * time.Minute}
	})
	waitReady(t, suite, "cluster")
	waitPointsTo(t, suite, "v1beta1", ourName)
}
