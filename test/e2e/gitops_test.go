// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// Argo CD prunes in the foreground: the garbage collector then deletes whatever an
// ownerReference points to at once. Children have none, so that the order is ours:
// versions leave discovery while pods serve them, and no request gets a 5xx.
func TestForegroundDeletion(t *testing.T) {
	requireBackend(t)
	load := startTraffic(t, trafficPaths...)
	events := watchObjects(t, []schema.GroupVersionResource{
		apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"), appsv1.SchemeGroupVersion.WithResource("deployments"),
		corev1.SchemeGroupVersion.WithResource("services"), corev1.SchemeGroupVersion.WithResource("pods"),
	}, v1alpha1.LabelBackend+"="+backendName)
	outcome.Eventually(t, time.Minute, "requests are answered", func(context.Context) error {
		load.mu.Lock()
		defer load.mu.Unlock()
		if load.answered < 50 || len(load.failures) > 0 {
			return fmt.Errorf("%d answers, %d failures: %v", load.answered, len(load.failures), load.failures)
		}
		return nil
	})
	began := time.Now()
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: backendName}}
	if err := suite.client.Delete(t.Context(), backend, ctrlclient.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "wait", "--for=delete", "metricsbackend/"+backendName, "--timeout=120s")
	took := time.Since(began)
	nothingIsLeft(t)

	total, failures := load.result()
	notFound := 0
	for _, failure := range failures {
		// A version that is not registered answers 404, which tells a client so.
		if strings.Contains(failure, "could not find the requested resource") {
			notFound++
			continue
		}
		outcome.Unsafe(t, "%s", failure)
	}
	if notFound == 0 || notFound == total {
		t.Errorf("%d of %d requests got 404: the load was not there before and after", notFound, total)
	}
	last := map[string]int64{}
	first := map[string]int64{}
	for _, e := range events() {
		if e.owner != "" {
			t.Errorf("%s has MetricsBackend %s for an owner: the garbage collector would have deleted it at once", e.name, e.owner)
		}
		if !e.ending {
			continue
		}
		last[e.kind] = max(last[e.kind], e.revision)
		if earliest, ok := first[e.kind]; !ok || e.revision < earliest {
			first[e.kind] = e.revision
		}
	}
	if last["apiservices"] == 0 {
		t.Fatal("saw no end of an APIService")
	}
	for _, kind := range []string{"services", "deployments", "pods"} {
		switch earliest, ok := first[kind]; {
		case !ok:
			t.Errorf("saw no end of any of the %s", kind)
		case earliest < last["apiservices"]:
			t.Errorf("the first of the %s ended at revision %d, before the last APIService, at %d", kind, earliest, last["apiservices"])
		}
	}
	t.Logf("removed in %s; %d requests, %d of them 404 once the versions were gone", took.Round(time.Millisecond), total, notFound)
}

// event is a write to an object.
type event struct {
	kind, name string
	// revision is etcd's, which tells what came first, whatever the kind.
	revision int64
	// ending: the deletion has begun, or is complete.
	ending bool
	// owner is the MetricsBackend in an ownerReference, manager the field manager of the last write.
	owner, manager string
}

// watchObjects notes each write to objects with the labels. What it returns stops it.
func watchObjects(t *testing.T, resources []schema.GroupVersionResource, selector string) func() []event {
	t.Helper()
	client, err := metadata.NewForConfig(suite.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	found := make(chan []event, len(resources))
	for _, resource := range resources {
		list, err := client.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			t.Fatalf("list %s: %v", resource.Resource, err)
		}
		watcher, err := client.Resource(resource).Watch(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatalf("watch %s: %v", resource.Resource, err)
		}
		go func() {
			var events []event
			for e := range watcher.ResultChan() {
				if object, ok := e.Object.(*metav1.PartialObjectMetadata); ok {
					events = append(events, eventOf(resource.Resource, e.Type, object))
				}
			}
			found <- events
		}()
	}
	return func() []event {
		cancel()
		var all []event
		for range resources {
			all = append(all, <-found...)
		}
		return all
	}
}

func eventOf(kind string, what watch.EventType, object *metav1.PartialObjectMetadata) event {
	e := event{kind: kind, name: strings.TrimPrefix(object.Namespace+"/"+object.Name, "/")}
	e.ending = what == watch.Deleted || object.DeletionTimestamp != nil
	for _, owner := range object.OwnerReferences {
		if owner.Kind == "MetricsBackend" {
			e.owner = owner.Name
		}
	}
	latest := metav1.Time{}
	for _, entry := range object.ManagedFields {
		if entry.Time != nil && !entry.Time.Before(&latest) {
			latest, e.manager = *entry.Time, entry.Manager
		}
	}
	// One that cannot be read is 0, and so before every other.
	e.revision, _ = strconv.ParseInt(object.ResourceVersion, 10, 64)
	return e
}
