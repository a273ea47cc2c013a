// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package selectorresolver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

var ingresses = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}

// cluster answers lists of ingresses, as kube-apiserver does, in pages.
type cluster struct {
	*httptest.Server
	mu       sync.Mutex
	names    []string
	refuse   int
	requests []string
	// hold delays answers until it is closed; may be nil.
	hold chan struct{}
}

func newCluster(t *testing.T, names ...string) *cluster {
	t.Helper()
	c := &cluster{names: names}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *cluster) set(refuse int, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse, c.names = refuse, names
}

func (c *cluster) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.requests...)
}

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hold != nil {
		hold := c.hold
		c.mu.Unlock()
		<-hold
		c.mu.Lock()
	}
	c.requests = append(c.requests, r.URL.Path+"?"+r.URL.Query().Get("labelSelector"))
	w.Header().Set("Content-Type", "application/json")
	if c.refuse != 0 {
		w.WriteHeader(c.refuse)
		status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(c.refuse), Message: "refused"}
		switch c.refuse {
		case http.StatusForbidden:
			status.Reason = metav1.StatusReasonForbidden
		case http.StatusNotFound:
			status.Reason = metav1.StatusReasonNotFound
		}
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to := min(from+limit, len(c.names))
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	if to < len(c.names) {
		list.Continue = strconv.Itoa(to)
	}
	for _, name := range c.names[from:to] {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		})
	}
	_ = json.NewEncoder(w).Encode(list)
}

func (c *cluster) resolver(t *testing.T, pods Pods, synced bool) (*Resolver, *clocktesting.FakePassiveClock) {
	t.Helper()
	client, err := metadata.NewForConfig(&rest.Config{Host: c.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC))
	return NewResolver(pods, func() bool { return synced }, client, clock), clock
}

func web() labels.Selector { return labels.SelectorFromSet(labels.Set{"app": "web"}) }

// TestCachedListsAreBounded by the names that they have together; the largest ones are cached, too.
func TestCachedListsAreBounded(t *testing.T) {
	r := NewResolver(nil, nil, nil, nil)
	largest := list{names: make([]string, MaxNames)}
	for i := range 2 * maxCachedNames / MaxNames {
		r.cached.Add(strconv.Itoa(i), largest)
	}
	if n := r.cached.Len(); n != maxCachedNames/MaxNames {
		t.Errorf("%d lists of %d names are cached, want %d", n, MaxNames, maxCachedNames/MaxNames)
	}
}

// TestPods come from what the informer knows, without a request.
func TestPods(t *testing.T) {
	c := newCluster(t)
	store := samplestore.NewStore(clocktesting.NewFakePassiveClock(time.Now()), time.Minute)
	store.Pods.SetMeta(samplestore.Key{Namespace: "shop", Name: "web-1"}, &samplestore.Meta{UID: "1", Labels: map[string]string{"app": "web"}})
	store.Pods.SetMeta(samplestore.Key{Namespace: "shop", Name: "db-1"}, &samplestore.Meta{UID: "2", Labels: map[string]string{"app": "db"}})
	r, _ := c.resolver(t, store.Pods, true)
	got, err := r.Names(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "shop", web())
	if err != nil {
		t.Fatal(err)
	}
	known, ok := r.Known(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "shop", web())
	if diff := cmp.Diff([]string{"web-1"}, got); diff != "" || !ok || !cmp.Equal(got, known) {
		t.Errorf("pods %v, known %v %t; (-want +got):\n%s", got, known, ok, diff)
	}
	if asked := c.asked(); len(asked) > 0 {
		t.Errorf("kube-apiserver was asked: %v", asked)
	}
	early, _ := c.resolver(t, store.Pods, false)
	if _, err := early.Names(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "shop", web()); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("before all pods are known: %v", err)
	}
	if _, ok := early.Known(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "shop", web()); ok {
		t.Error("pods are said to be known before they are")
	}
}

// TestNamesAreShared for a few seconds, in order, whatever the number of pages.
func TestNamesAreShared(t *testing.T) {
	var many []string
	for i := range 1200 {
		many = append(many, fmt.Sprintf("front-%04d", 1199-i))
	}
	c := newCluster(t, many...)
	r, clock := c.resolver(t, nil, true)
	names := func() []string {
		t.Helper()
		got, err := r.Names(t.Context(), ingresses, "shop", web())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := names(); len(got) != 1200 || got[0] != "front-0000" || got[1199] != "front-1199" {
		t.Errorf("%d names, the first of them %q", len(got), got[0])
	}
	pages := c.asked()
	if len(pages) != 3 || pages[0] != "/apis/networking.k8s.io/v1/namespaces/shop/ingresses?app=web" {
		t.Errorf("asked %v", pages)
	}
	c.set(0, "front")
	clock.SetTime(clock.Now().Add(freshFor - time.Second))
	if got := names(); len(got) != 1200 || len(c.asked()) != 3 {
		t.Errorf("%d names after %d requests, want those of before", len(got), len(c.asked()))
	}
	clock.SetTime(clock.Now().Add(time.Second))
	if diff := cmp.Diff([]string{"front"}, names()); diff != "" {
		t.Errorf("after a while (-want +got):\n%s", diff)
	}
	if _, err := r.Names(t.Context(), ingresses, "shop", labels.Everything()); err != nil || len(c.asked()) != 5 {
		t.Errorf("another selector: %v after %d requests", err, len(c.asked()))
	}
}

// TestKnownDoesNotWait and has better found for the next time.
func TestKnownDoesNotWait(t *testing.T) {
	c := newCluster(t, "a")
	r, clock := c.resolver(t, nil, true)
	if names, ok := r.Known(ingresses, "shop", web()); ok {
		t.Errorf("%v is known at first", names)
	}
	await := func(want ...string) {
		t.Helper()
		var got []string
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			got, _ = r.Known(ingresses, "shop", web())
			return cmp.Equal(want, got), nil
		})
		if err != nil {
			t.Fatalf("known are %v, want %v", got, want)
		}
	}
	await("a")
	c.mu.Lock()
	c.hold, c.names = make(chan struct{}), []string{"b"}
	c.mu.Unlock()
	clock.SetTime(clock.Now().Add(time.Minute))
	if names, ok := r.Known(ingresses, "shop", web()); !ok || !cmp.Equal([]string{"a"}, names) {
		t.Errorf("while kube-apiserver does not answer: %v %t", names, ok)
	}
	c.mu.Lock()
	close(c.hold)
	c.hold = nil
	c.mu.Unlock()
	await("b")
	// What was good once stays while there is nothing better.
	c.set(http.StatusInternalServerError)
	clock.SetTime(clock.Now().Add(time.Minute))
	for range 3 {
		await("b")
	}
	clock.SetTime(clock.Now().Add(keptFor))
	if names, ok := r.Known(ingresses, "shop", web()); ok {
		t.Errorf("%v is known for ever", names)
	}
}

func TestErrors(t *testing.T) {
	tests := map[string]struct {
		refuse int
		is     func(error) bool
		says   []string
	}{
		"forbidden": {http.StatusForbidden, apierrors.IsForbidden, []string{"ingresses.networking.k8s.io", "grant list", AggregationLabel}},
		"not found": {http.StatusNotFound, apierrors.IsNotFound, []string{"ingresses.networking.k8s.io"}},
		"broken":    {http.StatusInternalServerError, apierrors.IsServiceUnavailable, []string{"list ingresses.networking.k8s.io"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.set(tc.refuse)
			r, clock := c.resolver(t, nil, true)
			_, err := r.Names(t.Context(), ingresses, "shop", web())
			if !tc.is(err) {
				t.Fatalf("error %v", err)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if _, again := r.Names(t.Context(), ingresses, "shop", web()); again == nil || len(c.asked()) != 1 {
				t.Errorf("asked again at once: %v after %d requests", again, len(c.asked()))
			}
			c.set(0, "front")
			clock.SetTime(clock.Now().Add(failureFor + time.Second))
			if names, err := r.Names(t.Context(), ingresses, "shop", web()); err != nil || len(names) != 1 {
				t.Errorf("after it is granted: %v, %v", names, err)
			}
		})
	}
}

// TestTooMany does not hold more names than it says.
func TestTooMany(t *testing.T) {
	c := newCluster(t, make([]string, MaxNames+1)...)
	r, _ := c.resolver(t, nil, true)
	if _, err := r.Names(t.Context(), ingresses, "shop", web()); !apierrors.IsBadRequest(err) {
		t.Errorf("error %v", err)
	}
}

// TestImpatience: who leaves does not end the list for others.
func TestImpatience(t *testing.T) {
	c := newCluster(t, "front")
	hold := make(chan struct{})
	c.hold = hold
	r, _ := c.resolver(t, nil, true)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := r.Names(ctx, ingresses, "shop", web())
		left <- err
	}()
	cancel()
	if err := <-left; !apierrors.IsTimeout(err) {
		t.Errorf("error %v", err)
	}
	c.mu.Lock()
	close(hold)
	c.hold = nil
	c.mu.Unlock()
	if names, err := r.Names(t.Context(), ingresses, "shop", web()); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}
