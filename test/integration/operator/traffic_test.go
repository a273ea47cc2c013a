// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// requests are clients that list node metrics through kube-apiserver until stop.
type requests struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	sent   int
	failed []string
}

func startRequests(t *testing.T, suite *controlPlane, versions ...string) *requests {
	t.Helper()
	core, err := kubernetes.NewForConfig(suite.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &requests{cancel: cancel}
	t.Cleanup(cancel)
	for _, version := range versions {
		r.done.Go(func() {
			wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
				path := "/apis/metrics.k8s.io/" + version + "/nodes"
				err := core.RESTClient().Get().AbsPath(path).Do(ctx).Error()
				if ctx.Err() != nil {
					return
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				r.sent++
				if err != nil {
					r.failed = append(r.failed, fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.000"), path, err))
				}
			}, 20*time.Millisecond)
		})
	}
	return r
}

// stop ends the requests and fails the test for each that failed.
func (r *requests) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	r.done.Wait()
	t.Logf("%d requests, %d failed", r.sent, len(r.failed))
	if r.sent == 0 {
		t.Error("no request was made: nothing was proven")
	}
	for _, failure := range r.failed[:min(len(r.failed), 5)] {
		t.Error(failure)
	}
}

// guard checks the invariant until stop: no version is registered that a ready pod does not serve.
type guard struct {
	suite  *controlPlane
	cancel context.CancelFunc
	done   sync.WaitGroup
	looks  int
	broken []string
}

func startGuard(t *testing.T, suite *controlPlane) *guard {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g := &guard{suite: suite, cancel: cancel}
	t.Cleanup(cancel)
	g.done.Go(func() { wait.NonSlidingUntilWithContext(ctx, g.look, 10*time.Millisecond) })
	return g
}

func (g *guard) look(ctx context.Context) {
	broken, err := brokenInvariant(ctx, g.suite, func() (versions []string, err error) {
		var services apiregistrationv1.APIServiceList
		err = g.suite.admin.List(ctx, &services, owned())
		for _, service := range services.Items {
			versions = append(versions, service.Spec.Version)
		}
		return versions, err
	})
	if err != nil {
		return
	}
	g.looks++
	for _, what := range broken {
		g.broken = append(g.broken, "registered is "+what)
	}
}

// brokenInvariant are the versions, of those that there are, that a pod does not
// serve which was ready before they were read, and after.
func brokenInvariant(ctx context.Context, suite *controlPlane, read func() (versions []string, err error)) (broken []string, err error) {
	var before, after corev1.PodList
	if err := suite.admin.List(ctx, &before, owned()); err != nil {
		return nil, err
	}
	versions, err := read()
	if err != nil {
		return nil, err
	}
	if err := suite.admin.List(ctx, &after, owned()); err != nil {
		return nil, err
	}
	for _, pod := range before.Items {
		image := pod.Spec.Containers[0].Image
		stillReady := slices.ContainsFunc(after.Items, func(p corev1.Pod) bool { return p.UID == pod.UID && takesTraffic(&p) })
		for _, version := range versions {
			if takesTraffic(&pod) && stillReady && !slices.Contains(versionsOf(image), version) {
				broken = append(broken, fmt.Sprintf("%s, and ready pod %s (%s) does not serve it", version, pod.Name, image))
			}
		}
	}
	return broken, nil
}

func takesTraffic(pod *corev1.Pod) bool { return podReady(pod) && pod.DeletionTimestamp == nil }

func (g *guard) stop(t *testing.T) {
	t.Helper()
	g.cancel()
	g.done.Wait()
	if g.looks == 0 {
		t.Error("the invariant was never looked at")
	}
	for _, broken := range g.broken[:min(len(g.broken), 5)] {
		t.Error(broken)
	}
}

func unstructuredOf(object map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object}
}
