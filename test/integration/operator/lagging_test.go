// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// One of two kube-apiservers lags, or does not answer, while a version is retired
// and its image rolled back: the operator says which, and no pod changes until that
// one follows. Clients of either see no version that pods do not serve.
func TestOneOfTwoKubeAPIServersLags(t *testing.T) {
	suite := take(t)
	second := startSecondServer(t, suite)
	createBackend(t, suite, newBackend("cluster"))
	cases := []struct {
		name string
		set  func(t *testing.T, lagging bool)
		says string
		// answers tells whether clients of the second one get answers meanwhile.
		answers bool
	}{
		{"it lags", func(_ *testing.T, lagging bool) { second.setLagging(lagging) },
			"v1 is still in discovery of kube-apiserver " + advertisedSecond + ":", true},
		{"it does not answer", second.setStopped,
			"the discovery of kube-apiserver " + advertisedSecond + ":", false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			waitReady(t, suite, "cluster")
			waitDiscovered(t, second, "v1 v1beta1")
			t.Cleanup(func() { tc.set(t, false) })
			tc.set(t, true)
			changeBackend(t, suite, "cluster", rolledBack)
			// Each look asks the one that does not answer twice, for 10 s.
			outcome.Eventually(t, 2*patience, "the condition names the kube-apiserver", func(context.Context) error {
				backend := getBackend(t, suite, "cluster")
				c := condition(backend, v1alpha1.ConditionStaleAPIServicesRemoved)
				if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonRetiring || !strings.Contains(c.Message, tc.says) {
					return errors.New(show(backend))
				}
				return nil
			})
			if _, err := getAPIService(t.Context(), suite, "v1"); !apierrors.IsNotFound(err) {
				t.Errorf("APIService v1: %v, want that it is gone", err)
			}
			if tc.answers {
				if got, err := discoveredAt(t.Context(), second.config); err != nil || !slices.Contains(got, "v1") {
					t.Fatalf("the second kube-apiserver lists %v (%v): it does not lag, and nothing is proven", got, err)
				}
			}
			checkImages(t, suite, "before the second kube-apiserver follows", imageBoth)
			tc.set(t, false)
			waitReady(t, suite, "cluster")
			waitDiscovered(t, second, "v1beta1")
			checkImages(t, suite, "in the end", imageV1beta1)
			changeBackend(t, suite, "cluster", upgraded)
		})
	}
}

// rolledBack is the older image, and what it serves.
func rolledBack(spec *v1alpha1.MetricsBackendSpec) {
	spec.Serving.Image = imageV1beta1
	spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{v1alpha1.ResourceMetricsV1beta1}
}

// upgraded is the newer image, and what it serves.
func upgraded(spec *v1alpha1.MetricsBackendSpec) {
	spec.Serving.Image, spec.ResourceMetrics.Versions = imageBoth, nil
}

func waitDiscovered(t *testing.T, s *secondServer, want string) {
	t.Helper()
	outcome.Eventually(t, patience, "discovery of the second kube-apiserver", func(ctx context.Context) error {
		got, err := discoveredAt(ctx, s.config)
		if err != nil || strings.Join(got, " ") != want {
			return fmt.Errorf("it lists %v, want %s (%w)", got, want, err)
		}
		return nil
	})
}

// imagesOfPods are those of the pods that take traffic, in order.
func imagesOfPods(ctx context.Context, suite *controlPlane) (images []string, err error) {
	var pods corev1.PodList
	if err := suite.admin.List(ctx, &pods, owned()); err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if takesTraffic(&pod) {
			images = append(images, pod.Spec.Containers[0].Image)
		}
	}
	slices.Sort(images)
	return images, nil
}

func checkImages(t *testing.T, suite *controlPlane, when, image string) {
	t.Helper()
	if images, err := imagesOfPods(t.Context(), suite); err != nil || !slices.Equal(images, []string{image, image}) {
		t.Errorf("pods run %v %s (%v)", images, when, err)
	}
}
