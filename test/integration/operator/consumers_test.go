// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// askAs asks for nodes through kube-apiserver as a user with a user agent.
func askAs(t *testing.T, suite *controlPlane, version, user, userAgent string) {
	t.Helper()
	config := rest.CopyConfig(suite.config)
	config.UserAgent = userAgent
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.RESTClient().Get().AbsPath("/apis/metrics.k8s.io/" + version + "/nodes").Do(t.Context()).Error(); err != nil {
		t.Fatalf("%s asks for %s: %v", user, version, err)
	}
}

// Who asked through kube-apiserver turns up in the status, and keeps the version
// that leaves the spec, also when every pod that saw them is gone. kube-apiserver's
// own checks, clients that only read discovery, and the operator's requests do not.
func TestVersionKeptForItsConsumers(t *testing.T) {
	suite := take(t)
	suite.pods.behave(t, behaviour{tells: true})
	createBackend(t, suite, newBackend("cluster"))
	waitReady(t, suite, "cluster")
	askAs(t, suite, "v1", "jane", "kubectl/v1.37.0 (linux/amd64) kubernetes/1234567")
	askAs(t, suite, "v1beta1", "system:serviceaccount:kube-system:horizontal-pod-autoscaler", "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes/1234567")
	discovered(t, suite)

	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{v1alpha1.ResourceMetricsV1}
	})
	backend := waitCondition(t, suite, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConsumersActive)
	c := condition(backend, v1alpha1.ConditionConsumersCompatible)
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonConsumersActive || !strings.Contains(c.Message, "the HPA controller, kube-controller-manager") {
		t.Errorf("ConsumersCompatible is %s, %s: %s", c.Status, c.Reason, c.Message)
	}
	want := []string{
		"v1.metrics.k8s.io kubectl jane",
		"v1beta1.metrics.k8s.io kube-controller-manager system:serviceaccount:kube-system:horizontal-pod-autoscaler",
	}
	if got := consumersOf(backend); !slices.Equal(got, want) {
		t.Errorf("consumers %q, want %q", got, want)
	}

	// Every pod is replaced; the new ones have seen nobody.
	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Labels = map[string]string{"rolled": "yes"} })
	backend = waitCondition(t, suite, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConsumersActive)
	if got := consumersOf(backend); !slices.Equal(got, want) {
		t.Errorf("after a rolling update: consumers %q, want %q", got, want)
	}
	checkDiscovered(t, suite, "while v1beta1 is kept", "v1 v1beta1")

	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.RemoveDespiteConsumers = []v1alpha1.ResourceMetricsVersion{v1alpha1.ResourceMetricsV1beta1}
	})
	waitCondition(t, suite, "cluster", v1alpha1.ConditionConsumersCompatible, metav1.ConditionTrue, v1alpha1.ReasonRemovalForced)
	waitReady(t, suite, "cluster")
	checkDiscovered(t, suite, "after the override", "v1")
}

func consumersOf(backend *v1alpha1.MetricsBackend) []string {
	var names []string
	for _, c := range backend.Status.Consumers {
		names = append(names, strings.Join([]string{c.Version, c.UserAgent, c.User}, " "))
	}
	slices.Sort(names)
	return names
}
