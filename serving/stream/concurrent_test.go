// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// TestConcurrent is for the race detector, and checks what each client may rely
// on while others come and go: per object the values only rise, none comes twice,
// and the last value of all that it selects arrives.
func TestConcurrent(t *testing.T) {
	const namespaces, pods, rounds, readers = 3, 40, 60, 24
	w := newWorld(t)
	for ns := range namespaces {
		for pod := range pods {
			w.pod(fmt.Sprintf("ns%d", ns), fmt.Sprintf("p%02d", pod), fmt.Sprintf("app=app%d", pod%4))
			w.store(fmt.Sprintf("ns%d", ns), fmt.Sprintf("p%02d", pod), 0)
		}
	}
	selections := []Selection{
		{}, selecting(t, "ns1", "", ""), selecting(t, "", "app=app1", ""),
		selecting(t, "ns2", "app in (app1,app2)", ""), selecting(t, "ns0", "", "metadata.name=p07"),
		selecting(t, "", "app!=app0", "metadata.namespace=ns1"),
		selecting(t, "", "app notin (app0,1,2,3,4,5,6,7,8,9)", ""), // too many terms to be matched by the publisher
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients, churn sync.WaitGroup
	for n := range readers {
		s := selections[n%len(selections)]
		want := map[string]string{}
		for item := range (collectionSource{w.collection}).Select("", nil, samplestore.Key{}) {
			if s.matches(item) {
				want[item.ItemKey().Namespace+"/"+item.ItemKey().Name] = strconv.Itoa(rounds)
			}
		}
		watcher, err := w.hub.Watch(ctx, Request{Metrics: w.metrics, Selection: s, Bookmarks: true, InitialEventsEnd: true, NewBookmark: bookmark})
		if err != nil {
			t.Fatal(err)
		}
		clients.Go(func() {
			defer watcher.Stop()
			got, left := map[string]string{}, len(want)
			for e := range watcher.ResultChan() {
				if e.Type == watch.Bookmark {
					if len(got) != len(want) {
						t.Errorf("selection %s: the initial events told of %d of %d pods", s.id(), len(got), len(want))
					}
					continue
				}
				var b bytes.Buffer
				if err := e.Object.(*Watcher).CacheEncode("text", nil, &b); err != nil {
					t.Error(err)
					return
				}
				key, value, some := strings.Cut(b.String(), " ")
				if !some {
					continue
				}
				if len(value) < len(got[key]) || len(value) == len(got[key]) && value <= got[key] {
					t.Errorf("%s: %s after %s", key, value, got[key])
				}
				got[key] = value
				if value == want[key] {
					left--
				}
				if left == 0 {
					break
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("selection %s: the last values (-want +got):\n%s", s.id(), diff)
			}
		})
	}
	for n := range 4 {
		random := rand.New(rand.NewPCG(1, uint64(n)))
		churn.Go(func() {
			for ctx.Err() == nil {
				watcher, err := w.hub.Watch(ctx, Request{Metrics: w.metrics, Selection: selections[random.IntN(len(selections))]})
				if err != nil {
					t.Error(err)
					return
				}
				if e, open := <-watcher.ResultChan(); open {
					_ = e.Object.(*Watcher).CacheEncode("text", nil, &bytes.Buffer{})
				}
				watcher.Stop()
			}
		})
	}
	for round := 1; round <= rounds; round++ {
		for ns := range namespaces {
			for pod := range pods {
				w.store(fmt.Sprintf("ns%d", ns), fmt.Sprintf("p%02d", pod), round)
			}
		}
	}
	clients.Wait()
	cancel()
	churn.Wait()
	if watchers, groups := w.hub.Watchers(); watchers != 0 || groups != 0 {
		t.Errorf("left: %d watchers in %d groups", watchers, groups)
	}
}
