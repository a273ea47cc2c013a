// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// hubStorage is the least of a REST storage that watches a hub.
type hubStorage struct{ hub *Hub }

func (s hubStorage) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	return s.hub.Watch(ctx, Request{
		Selection:        Selection{Namespace: request.NamespaceValue(ctx), Labels: options.LabelSelector, Fields: options.FieldSelector},
		Bookmarks:        options.AllowWatchBookmarks,
		InitialEventsEnd: options.AllowWatchBookmarks && options.SendInitialEvents != nil && *options.SendInitialEvents,
		Abort:            AbortFrom(ctx),
		NewBookmark: func(end bool) runtime.Object {
			b := &metrics.PodMetrics{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
			if end {
				b.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			}
			return b
		},
	})
}

// serveHub is the API server's own watch handler over a hub.
func serveHub(t *testing.T, hub *Hub) *httptest.Server {
	version := schema.GroupVersion{Group: metrics.GroupName, Version: "v1"}
	scope := &handlers.RequestScope{
		Namer:            handlers.ContextBasedNaming{Namer: meta.NewAccessor()},
		Serializer:       apiCodecs,
		ParameterCodec:   runtime.NewParameterCodec(apiScheme),
		Convertor:        apiScheme,
		Resource:         version.WithResource("pods"),
		Kind:             version.WithKind("PodMetrics"),
		MetaGroupVersion: metav1.SchemeGroupVersion,
	}
	handler := handlers.ListResource(nil, hubStorage{hub}, scope, true, 30*time.Minute)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := &request.RequestInfo{
			IsResourceRequest: true, Verb: "watch", APIGroup: version.Group, APIVersion: version.Version,
			Resource: "pods", Namespace: "default", Path: r.URL.Path,
		}
		handler(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
	}))
	t.Cleanup(server.Close)
	return server
}

// TestWatchHandler streams through the stock handler: what is stored is there
// first, then what comes, each event encoded once for all clients.
func TestWatchHandler(t *testing.T) {
	const clients = 3
	source := &apiSource{Table: point.NewStore(clock.RealClock{}, time.Hour).Pods}
	hub := NewHub(source, clock.RealClock{}, func() float64 { return 1 }, usual)
	source.feed(hub)
	sample := 0
	store := func(name string) {
		sample++
		source.SetMeta(point.Key{Namespace: "default", Name: name}, &point.Meta{UID: "u", Labels: map[string]string{"app": "web"}})
		source.Publish([]point.Update{{Key: point.Key{Namespace: "default", Name: name}, Point: &point.Point{
			Time: time.Now(), Newest: time.UnixMilli(int64(sample)), Usages: []point.Usage{{Name: "a", CPU: 1, Memory: 1}},
		}}})
	}
	store("one")
	store("two")
	server := serveHub(t, hub)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard, synced := make(chan []string), make(chan struct{}, clients)
	for range clients {
		go func() { heard <- listen(ctx, server.URL, 4, synced) }()
	}
	for range clients {
		<-synced
	}
	store("one")
	want := []string{"ADDED one 1", "ADDED two 2", "BOOKMARK  1 end", "ADDED one 3"}
	for range clients {
		if diff := cmp.Diff(want, <-heard); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if got := source.encodes.Load(); got != 3 {
		t.Errorf("%d encodes of 3 points for %d clients", got, clients)
	}
	cancel()
	server.Close() // waits for the handlers
	if watchers, groups := hub.Watchers(); watchers != 0 || groups != 0 {
		t.Errorf("left: %d watchers in %d groups", watchers, groups)
	}
}

// listen returns the first n events of a watch, and tells when the initial ones
// have come to their end.
func listen(ctx context.Context, server string, n int, synced chan<- struct{}) []string {
	query := "/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=app%3Dweb"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server+query, nil)
	if err != nil {
		return []string{err.Error()}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = answer.Body.Close() }()
	var got []string
	err = decodeEvents(answer.Body, func(typ string, object []byte) bool {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(object, &o); err != nil {
			got = append(got, err.Error())
		}
		text := fmt.Sprintf("%s %s %s", typ, o.Name, o.ResourceVersion)
		if o.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			text += " end"
			synced <- struct{}{}
		}
		got = append(got, text)
		return len(got) < n
	})
	if err != nil {
		got = append(got, err.Error())
	}
	return got
}
