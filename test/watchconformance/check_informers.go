// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

func informerByWatchList(ctx context.Context, t *target) (string, error) {
	return t.informer(ctx, true)
}

func informerByList(ctx context.Context, t *target) (string, error) {
	return t.informer(ctx, false)
}

// listWatch says whether client-go may list by a watch.
type listWatch struct {
	*cache.ListWatch
	byWatch bool
}

// IsWatchListSemanticsUnSupported is what client-go asks for.
func (l listWatch) IsWatchListSemanticsUnSupported() bool { return !l.byWatch }

// informer runs a stock informer until it has synced and has told of two new data
// points of each object that lists renew. One could be what a watch that opens late
// begins with.
func (t *target) informer(ctx context.Context, byWatch bool) (string, error) {
	// The reflector logs what goes wrong; it is told in the result.
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, klog.Logger{}), 3*t.options.PointInterval+2*t.options.Patience)
	defer cancel()
	config := rest.CopyConfig(t.config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", err
	}
	resource := client.Resource(schema.GroupVersionResource{Group: t.api.Group, Version: t.version, Resource: t.resource.Name})
	observed := &sightings{updates: map[string]int{}}
	var lists atomic.Int64
	informer := cache.NewSharedIndexInformer(listWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			lists.Add(1)
			list, err := resource.List(ctx, o)
			return list, observed.failed("list", err)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := resource.Watch(ctx, o)
			return w, observed.failed("watch", err)
		},
	}, byWatch}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	handler, err := informer.AddEventHandler(observed)
	if err != nil {
		return "", err
	}
	began := time.Now()
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	defer cancel()
	if !cache.WaitForCacheSync(within(ctx, t.options.Patience), handler.HasSynced) {
		return "", fmt.Errorf("it has not synced within %s%s", t.options.Patience, observed.lastError())
	}
	synced := time.Since(began)
	if byWatch && lists.Load() > 0 {
		return "", fmt.Errorf("it fell back to lists%s", observed.lastError())
	}
	observed.forget()
	before, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	var renewed []string
	for len(renewed) == 0 { // a list may be of a replica that is behind
		if renewed, err = t.changed(ctx, before); err != nil {
			return "", err
		}
	}
	ticker := time.NewTicker(t.options.moment() / 20)
	defer ticker.Stop()
	for {
		missing := observed.lacking(renewed)
		if fewEnough(len(missing), len(renewed)) {
			return fmt.Sprintf("synced in %s, updates of %d objects", synced.Round(time.Millisecond), len(renewed)-len(missing)), nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("it told of no two new data points of %d of %d objects, as %s%s", len(missing), len(renewed), missing[0], observed.lastError())
		case <-ticker.C:
		}
	}
}

// changed lists until objects have another data point than before.
func (t *target) changed(ctx context.Context, before *listing) ([]string, error) {
	if len(before.objects) == 0 {
		return nil, unseen("there are no %s", t.resource.Name)
	}
	if err := t.waitRenewed(ctx, before.objects); err != nil {
		return nil, err
	}
	after, err := t.list(ctx, nil)
	if err != nil {
		return nil, err
	}
	now := lasting(after, after)
	var changed []string
	for _, o := range before.objects {
		if n, ok := now[o.key()]; ok && n.identity() != o.identity() {
			changed = append(changed, o.key())
		}
	}
	return changed, nil
}

// sightings counts the updates of each object that an informer told of.
type sightings struct {
	mu      sync.Mutex
	updates map[string]int
	err     error
}

var _ cache.ResourceEventHandler = &sightings{}

func (s *sightings) OnAdd(object any, _ bool) { s.saw(object) }
func (s *sightings) OnUpdate(before, now any) {
	a, aok := before.(*unstructured.Unstructured)
	b, bok := now.(*unstructured.Unstructured)
	// A resync updates an object with itself.
	if aok && bok && a.GetResourceVersion() != b.GetResourceVersion() {
		s.saw(now)
	}
}
func (s *sightings) OnDelete(any) {}

func (s *sightings) saw(object any) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates[u.GetNamespace()+"/"+u.GetName()]++
}

func (s *sightings) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.updates)
}

// lacking returns the objects of which it did not tell twice.
func (s *sightings) lacking(keys []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []string
	for _, key := range keys {
		if s.updates[key] < 2 {
			missing = append(missing, key)
		}
	}
	return missing
}

func (s *sightings) failed(verb string, err error) error {
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = fmt.Errorf("%s: %w", verb, err)
	}
	return err
}

func (s *sightings) lastError() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return ""
	}
	return ", its last error: " + s.err.Error()
}

// within is closed after a time, for what waits on a channel.
func within(ctx context.Context, d time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}
