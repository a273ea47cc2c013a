// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// The cluster limits the priority class of operator and serving, whose pods run in all tests, and their
// namespace's ResourceQuota counts them.
func TestPriorityClassIsLimited(t *testing.T) {
	requireBackend(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "critical"},
		Spec: corev1.PodSpec{
			PriorityClassName: "system-cluster-critical",
			Containers:        []corev1.Container{{Name: "c", Image: "metrics-backend/burn:dev"}},
		},
	}
	const refusal = "insufficient quota to match these scopes"
	_, err := suite.core.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("a pod of class %s in namespace %s: got %v, want %q: nothing is proven", pod.Spec.PriorityClassName, pod.Namespace, err, refusal)
	}
	outcome.Eventually(t, time.Minute, "the ResourceQuota counts operator and serving", func(ctx context.Context) error {
		quota, err := suite.core.CoreV1().ResourceQuotas(namespace).Get(ctx, "metrics-backend-operator", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if used := quota.Status.Used[corev1.ResourcePods]; used.Value() < 3 {
			return fmt.Errorf("%s pods are used", used.String())
		}
		return nil
	})
}
