// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// One of two serving pods is deleted under load: no request fails.
func TestServingPodDeletedUnderLoad(t *testing.T) {
	requireBackend(t)
	waitServing(t, 2)
	load := startTraffic(t, trafficPaths...)
	for range 2 {
		victim := readyPods(t.Context(), t)[0]
		kubectl(t, "delete", "pod", "-n", namespace, victim, "--wait")
		waitServing(t, 2)
	}
	if total := load.finish(t, "while two pods were replaced"); total < 100 {
		t.Errorf("only %d requests were made: too few to tell", total)
	}
	waitReady(t)
}

// The operator's pod is killed: its successor goes on, and requests never notice.
func TestOperatorKilled(t *testing.T) {
	requireBackend(t)
	load := startTraffic(t, trafficPaths...)
	kubectl(t, "delete", "pod", "-n", namespace, "-l", "app.kubernetes.io/name=metrics-backend-operator", "--grace-period=0", "--force")

	// The new operator does its work: a change made while it was away arrives.
	changeBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Labels = map[string]string{"example.com/changed": "while-away"}
	})
	outcome.Eventually(t, 2*time.Minute, "the operator rolls out the change", func(ctx context.Context) error {
		var list appsv1.DeploymentList
		if err := suite.client.List(ctx, &list, serving()...); err != nil {
			return err
		}
		if len(list.Items) != 1 || list.Items[0].Spec.Template.Labels["example.com/changed"] != "while-away" {
			return fmt.Errorf("%d Deployments, labels not there yet", len(list.Items))
		}
		return nil
	})
	waitReady(t)
	load.finish(t, "while the operator was away and serving was rolled")
}

// kube-apiserver is killed and comes back: everything heals without a hand.
func TestKubeAPIServerKilled(t *testing.T) {
	requireBackend(t)
	// Pods that a test before replaced are gone.
	waitServing(t, 2)
	before := startsOfPods(t)
	cluster(t, "kill", "kube-apiserver")
	cluster(t, "start", "kube-apiserver")
	outcome.Eventually(t, 2*time.Minute, "both versions answer again", func(ctx context.Context) error {
		for _, path := range trafficPaths {
			if err := suite.core.RESTClient().Get().AbsPath(path).Do(ctx).Error(); err != nil {
				return err
			}
		}
		return nil
	})
	waitReady(t)
	if after := startsOfPods(t); after != before {
		outcome.Unsafe(t, "serving pods were replaced or restarted:\n%s\nnow:\n%s", before, after)
	}
	waitControllers(t)
}

// waitControllers waits until the controller manager's informers follow again what
// happens to Deployments, ReplicaSets and pods. While they do not, its garbage
// collector never learns of an owner that is deleted and made again by the same
// name, and leaves what it owned behind: the tests after this one do just that.
func waitControllers(t *testing.T) {
	t.Helper()
	const probe = "e2e-controllers-follow"
	kubectl(t, "create", "deployment", probe, "-n", "default", "--image=metrics-backend/none:dev")
	owned := func(ctx context.Context) (int, error) {
		list := []ctrlclient.ListOption{ctrlclient.InNamespace("default"), ctrlclient.MatchingLabels{"app": probe}}
		var sets appsv1.ReplicaSetList
		var pods corev1.PodList
		if err := suite.client.List(ctx, &sets, list...); err != nil {
			return 0, err
		}
		err := suite.client.List(ctx, &pods, list...)
		return len(sets.Items) + len(pods.Items), err
	}
	expect := func(want int, what string) {
		t.Helper()
		outcome.Eventually(t, 2*time.Minute, what, func(ctx context.Context) error {
			if n, err := owned(ctx); err != nil || n != want {
				return fmt.Errorf("%d ReplicaSets and pods, want %d: %v", n, want, err)
			}
			return nil
		})
	}
	expect(2, "a ReplicaSet and a pod are made")
	kubectl(t, "delete", "deployment", probe, "-n", "default", "--wait")
	expect(0, "they are collected")
}

// Each child is deleted by hand: the operator makes it again, and the backend is
// Ready again.
func TestServingChildrenDeleted(t *testing.T) {
	requireBackend(t)
	kinds := []string{"deployment", "service", "serviceaccount", "poddisruptionbudget", "rolebinding", "secret"}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			kubectl(t, "delete", kind, "-n", namespace, "-l", v1alpha1.LabelBackend+"="+backendName, "--wait")
			outcome.Eventually(t, time.Minute, kind+" is made again", func(context.Context) error {
				out, err := run("kubectl", "get", kind, "-n", namespace, "-l", v1alpha1.LabelBackend+"="+backendName, "-o", "name")
				if err != nil || out == "" {
					return fmt.Errorf("%v: %q", err, out)
				}
				return nil
			})
			waitServing(t, 2)
			waitReady(t)
		})
	}
}

// waitServing waits until that many serving pods are ready and no other is left.
func waitServing(t *testing.T, want int) {
	t.Helper()
	outcome.Eventually(t, 3*time.Minute, fmt.Sprintf("%d ready serving pods", want), func(ctx context.Context) error {
		var pods corev1.PodList
		if err := suite.client.List(ctx, &pods, serving()...); err != nil {
			return err
		}
		ready := readyPods(ctx, t)
		if len(ready) != want || len(pods.Items) != want {
			return fmt.Errorf("%d pods, of which ready: %v", len(pods.Items), ready)
		}
		return nil
	})
}

func readyPods(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var pods corev1.PodList
	if err := suite.client.List(ctx, &pods, serving()...); err != nil {
		t.Logf("list serving pods: %v", err)
		return nil
	}
	var names []string
	for _, pod := range pods.Items {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				names = append(names, pod.Name)
			}
		}
	}
	return names
}
