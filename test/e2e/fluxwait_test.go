// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/gitops"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// waits records every version of the MetricsBackend, and when the Kustomization metrics became ready, which waits for it.
// etcd's revisions order them.
type waits struct {
	stop func()

	mu       sync.Mutex
	backends []backendVersion
	ready    []readyAt
	err      error
}

type backendVersion struct {
	revision int64
	reading  gitops.Reading
	text     string
}

type readyAt struct {
	revision int64
	commit   string
}

// watchWaits watches until judge is called. The CRD of the MetricsBackend may be created later.
func watchWaits(t *testing.T) *waits {
	t.Helper()
	reader, err := gitops.NewReader(suite.root)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(suite.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	w := &waits{stop: func() { cancel(); done.Wait() }}
	t.Cleanup(w.stop)
	follow := func(resource dynamic.ResourceInterface, record func(*unstructured.Unstructured) error) {
		done.Go(func() {
			err := followObjects(ctx, resource, func(object *unstructured.Unstructured) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				return record(object)
			})
			w.mu.Lock()
			defer w.mu.Unlock()
			w.err = errors.Join(w.err, err)
		})
	}
	follow(client.Resource(v1alpha1.GroupVersion.WithResource("metricsbackends")), func(object *unstructured.Unstructured) error {
		return w.recordBackend(reader, object)
	})
	follow(client.Resource(kustomizations.GroupVersion().WithResource("kustomizations")).Namespace(fluxNamespace), w.recordKustomization)
	return w
}

// followObjects calls record for each version of the objects until ctx ends.
func followObjects(ctx context.Context, resource dynamic.ResourceInterface, record func(*unstructured.Unstructured) error) error {
	var list *unstructured.UnstructuredList
	err := outcome.Poll(ctx, 5*time.Minute, func(ctx context.Context) (err error) {
		list, err = resource.List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := record(&list.Items[i]); err != nil {
			return err
		}
	}
	watcher, err := resource.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		switch {
		case ctx.Err() != nil:
			return nil
		case !ok:
			return fmt.Errorf("watch: %v", event.Object)
		case event.Type == watch.Deleted:
			continue
		}
		if err := record(object); err != nil {
			return err
		}
	}
	if ctx.Err() == nil {
		return errors.New("the watch ended")
	}
	return nil
}

func (w *waits) recordBackend(reader *gitops.Reader, object *unstructured.Unstructured) error {
	revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	var backend v1alpha1.MetricsBackend
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &backend); err != nil {
		return err
	}
	reading, problems, err := reader.Read(&backend)
	if err != nil {
		return err
	}
	image := ""
	if backend.Status.Serving != nil {
		image = backend.Status.Serving.Image
	}
	text := fmt.Sprintf("generation %d, image %q: %s", backend.Generation, image, reading)
	if len(problems) > 0 {
		return fmt.Errorf("%s: %v", text, problems)
	}
	w.backends = append(w.backends, backendVersion{revision, reading, text})
	return nil
}

func (w *waits) recordKustomization(object *unstructured.Unstructured) error {
	if object.GetName() != "metrics" {
		return nil
	}
	s, err := fluxStatusOf(object)
	if err != nil {
		return err
	}
	last := ""
	if len(w.ready) > 0 {
		last = w.ready[len(w.ready)-1].commit
	}
	if s.ready().Status != metav1.ConditionTrue || s.LastAppliedRevision == last {
		return nil
	}
	revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	w.ready = append(w.ready, readyAt{revision, s.LastAppliedRevision})
	return err
}

// judge ends the watch, and fails the test if the Kustomization was ready at a commit while the MetricsBackend was not
// Current, or at fewer commits than least.
func (w *waits) judge(t *testing.T, least int) {
	t.Helper()
	w.stop()
	if w.err != nil {
		t.Error(w.err)
	}
	if len(w.ready) < least {
		t.Errorf("the Kustomization was ready at %d commits, want %d: %+v", len(w.ready), least, w.ready)
	}
	for _, ready := range w.ready {
		var backend backendVersion
		for _, version := range w.backends {
			if version.revision < ready.revision {
				backend = version
			}
		}
		t.Logf("ready at %s, MetricsBackend %s", ready.commit, backend.text)
		if backend.reading.KStatus.Status != status.CurrentStatus {
			outcome.Unsafe(t, "the Kustomization was ready at %s, and the MetricsBackend not Current: %s", ready.commit, backend.text)
		}
	}
}
