// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"slices"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/gitops"
)

// Each version of the object that kube-apiserver ever stored is read rightly by
// kstatus and by Argo CD, from its creation to its end.
func TestEachStoredStatusReadsRightly(t *testing.T) {
	reader, err := gitops.NewReader(suite.root)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	watcher, err := suite.admin.Watch(ctx, &v1alpha1.MetricsBackendList{})
	if err != nil {
		t.Fatal(err)
	}
	var stored []*v1alpha1.MetricsBackend
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			backend, ok := event.Object.(*v1alpha1.MetricsBackend)
			if !ok || backend.Name != "cluster" {
				continue
			}
			if event.Type == watch.Deleted {
				return
			}
			stored = append(stored, backend)
		}
	}()

	createBackend(t, newBackend("cluster"))
	waitReady(t, "cluster")
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{v1alpha1.ResourceMetricsV1beta1}
	})
	waitReady(t, "cluster")
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.Versions = nil })
	waitReady(t, "cluster")
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageV1beta1 })
	waitCondition(t, "cluster", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed)
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageBoth })
	waitReady(t, "cluster")
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "missing"}}
	})
	waitCondition(t, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretMissing)
	deleteBackend(t, "cluster")
	<-done

	if first := stored[0]; first.Status.ObservedGeneration != -1 {
		t.Errorf("created with status %+v: kstatus would take an object without any for finished", first.Status)
	}
	read := map[status.Status]int{}
	var health []string
	var before *v1alpha1.MetricsBackend
	for _, backend := range stored {
		reading, problems, err := reader.Read(backend)
		if err != nil {
			t.Fatal(err)
		}
		read[reading.KStatus.Status]++
		health = append(health, reading.ArgoCD.Status)
		for _, problem := range append(problems, gitops.Lint(before, backend)...) {
			t.Errorf("resourceVersion %s: %s: %s:%s", backend.ResourceVersion, reading, problem, show(backend))
		}
		before = backend
	}
	for _, state := range []status.Status{status.InProgressStatus, status.CurrentStatus, status.FailedStatus, status.TerminatingStatus} {
		if read[state] == 0 {
			t.Errorf("never %s: %v", state, read)
		}
	}
	// A sync of Argo CD ends at the first Degraded.
	if ready := slices.Index(health, "Healthy"); slices.Contains(health[:max(ready, 0)], "Degraded") {
		t.Errorf("Degraded on the way to Healthy: %v", health)
	}
	t.Logf("%d versions were stored; kstatus %v", len(stored), read)
}
