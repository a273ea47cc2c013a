// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The status of a declared metric is what the serving pods say, asked with the
// operator's rights and written with them; a steady state writes nothing.
func TestDeclaredMetric(t *testing.T) {
	const namespace = "declaring"
	err := suite.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	metric := &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "queue"}}
	metric.Spec.Query = "sum(queue_length)"
	if err := suite.admin.Create(t.Context(), metric); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = suite.admin.Delete(context.Background(), metric) })
	current := &v1alpha1.ExternalMetric{}
	await := func(what string, good func(ready metav1.Condition) bool) {
		t.Helper()
		eventually(t, patience, what, func(ctx context.Context) error {
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
		Kind: "ExternalMetric", Namespace: namespace, Name: metric.Name, UID: metric.UID, Generation: metric.Generation,
		Ready: true, Value: "42", Values: 1, Time: metav1.NewTime(time.Now().Add(-10 * time.Second)),
	}
	suite.pods.setDeclared(health)
	t.Cleanup(func() { suite.pods.setDeclared() })
	createBackend(t, newBackend("declaring", withExternalMetrics))
	await("it has a value", func(ready metav1.Condition) bool {
		return ready.Status == metav1.ConditionTrue && current.Status.Value == "42" && current.Status.Time != nil
	})

	written, asked := current.ResourceVersion, suite.pods.declaredRequests()
	eventually(t, patience, "several polls", func(context.Context) error {
		health.Time = metav1.Now()
		suite.pods.setDeclared(health)
		if now := suite.pods.declaredRequests(); now < asked+6 {
			return fmt.Errorf("%d requests", now-asked)
		}
		return nil
	})
	if err := suite.admin.Get(t.Context(), client.ObjectKeyFromObject(metric), current); err != nil {
		t.Fatal(err)
	}
	if current.ResourceVersion != written {
		t.Errorf("written in a steady state: %+v", current.Status)
	}

	health.Ready, health.Reason, health.Message = false, "Timeout", "no answer within 10s"
	suite.pods.setDeclared(health)
	await("its failure, in the source's words", func(ready metav1.Condition) bool {
		return ready.Status == metav1.ConditionFalse && ready.Reason == "Timeout" && ready.Message == "no answer within 10s"
	})
	if current.Status.Value != "42" {
		t.Errorf("the last value is gone: %+v", current.Status)
	}
}

// The status of a policy tells whether its rules can be read.
func TestPolicyStatus(t *testing.T) {
	object := policyOf("readable", v1alpha1.ExternalMetricsPolicySpec{Rules: []v1alpha1.ExternalMetricsPolicyRule{deny("a.*")}})
	if err := suite.admin.Create(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = suite.admin.Delete(context.Background(), &object) })
	eventually(t, patience, "its status", func(ctx context.Context) error {
		if err := suite.admin.Get(ctx, client.ObjectKeyFromObject(&object), &object); err != nil {
			return err
		}
		if object.Status.ObservedGeneration != object.Generation || !meta.IsStatusConditionTrue(object.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("%+v", object.Status)
		}
		return nil
	})
}
