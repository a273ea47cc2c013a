// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/metricsbackend/metrics-backend-operator/test/delivery"
	"github.com/metricsbackend/metrics-backend-operator/test/informers"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// watchByInformers holds stock informers of client-go, in each way to ask, for the watch window:
// their handlers are called once for each data point.
func watchByInformers(t *testing.T, p *polls) {
	for _, way := range informers.Ways() {
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			watchByInformer(t, p, way)
		})
	}
}

func watchByInformer(t *testing.T, p *polls, way informers.Way) {
	informer, err := informers.New(suite.config, way)
	if err != nil {
		t.Fatal(err)
	}
	failed := func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			outcome.Unsafe(t, "the informer's watch: %v", err)
		}
	}
	if err := informer.SetWatchErrorHandlerWithContext(failed); err != nil {
		t.Fatal(err)
	}

	s := &stream{resource: way.Resource, Stream: delivery.Stream{Identify: delivery.ByVersion, Listed: !way.WatchList}}
	observe := func(object any) {
		accessor, ok := object.(metav1.Object)
		if !ok {
			t.Errorf("the informer holds a %T", object)
			return
		}
		s.add(nameOf(accessor) + " " + accessor.GetResourceVersion())
	}
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: observe, UpdateFunc: func(_, now any) { observe(now) }})
	if err != nil {
		t.Fatal(err)
	}
	// A reflector asks for five to ten minutes at a time, and starts over then.
	ctx, cancel := context.WithTimeout(t.Context(), min(watchWindow(t), 5*time.Minute)-10*time.Second)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		informer.RunWithContext(ctx)
		close(ended)
	}()
	synced, late := context.WithTimeout(ctx, time.Minute)
	defer late()
	if !cache.WaitForCacheSync(synced.Done(), registered.HasSynced) {
		outcome.Deadlinef(t, "the informer has not synced after a minute")
	}
	<-ended
	p.judge(t, s)
}
