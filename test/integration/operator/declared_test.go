// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// The status of a declared metric is what the serving pods say, asked with the
// operator's rights and written with them.
func TestDeclaredMetric(t *testing.T) {
	suite := take(t)
	metric := &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: otherNamespace, Name: "queue"}}
	metric.Spec.Query = "sum(queue_length)"
	create(t, suite, metric)
	current := &v1alpha1.ExternalMetric{}
	await := func(what string, good func(ready metav1.Condition) bool) {
		t.Helper()
		outcome.Eventually(t, patience, what, func(ctx context.Context) error {
			if err := suite.admin.Get(ctx, client.ObjectKeyFromObject(metric), current); err != nil {
				return err
			}
			ready := meta.FindStatusCondition(current.Status.Conditions, v1alpha1.ConditionReady)
			if ready == nil || current.Status.ObservedGeneration != current.Generation || !good(*ready) {
				return fmt.Errorf("%+v", current.Status)
			}
			return nil
		})
	}
	await("nobody serves it", func(ready metav1.Condition) bool { return ready.Reason == v1alpha1.ReasonNoBackend })

	health := v1alpha1.DeclaredHealth{
		Kind: "ExternalMetric", Namespace: metric.Namespace, Name: metric.Name, UID: metric.UID, Generation: metric.Generation,
		Ready: true, Value: "42", Values: 1, Time: metav1.NewTime(time.Now().Add(-10 * time.Second)),
	}
	tell := func() { suite.pods.behave(t, behaviour{declared: []v1alpha1.DeclaredHealth{health}}) }
	tell()
	createBackend(t, suite, newBackend("declaring", withExternalMetrics))
	await("it has a value", func(ready metav1.Condition) bool {
		return ready.Status == metav1.ConditionTrue && current.Status.Value == "42" && current.Status.Time != nil
	})

	health.Ready, health.Reason, health.Message = false, "Timeout", "no answer within 10s"
	tell()
	await("its failure, in the source's words", func(ready metav1.Condition) bool {
		return ready.Status == metav1.ConditionFalse && ready.Reason == "Timeout" && ready.Message == "no answer within 10s"
	})
	if current.Status.Value != "42" {
		t.Errorf("the last value is gone: %+v", current.Status)
	}
}
