// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
)

// On a stream that is never idle, an object that it does not renew is still dropped at MaxAge, not at the end of the
// stream.
func TestExpiryOnABusyStream(t *testing.T) {
	for name, c := range map[string]struct {
		late        map[string]int64 // pods beside "busy" that the stream tells of, each second the same
		wantHeld    string
		wantChanges []string // of all pods but "busy"
		wantEntries int
	}{
		"a pod that is gone": {
			nil, "busy=98m", []string{"0s Updated pod=500m", "1m30s Dropped pod=500m"}, 1,
		},
		"a pod whose node has set its clock back": {
			map[string]int64{"pod": 400}, "busy=98m pod=400m",
			[]string{"0s Updated pod=500m", "1m30s Dropped pod=500m", "1m30.5s Updated pod=400m", "3m9s Dropped pod=400m"}, 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &fakeServer{served: map[string]string{"v1": both}, pods: map[string]int64{"busy": 0, "pod": 500}}
			w.watch = func(rw http.ResponseWriter, r *http.Request) {
				time.Sleep(500 * time.Millisecond) // never in the moment in which ages are looked at
				for second := int64(0); r.Context().Err() == nil; second++ {
					time.Sleep(time.Second)
					send(rw, "ADDED", pod("v1", "busy", second))
					for name, at := range c.late {
						send(rw, "ADDED", pod("v1", name, at))
					}
				}
			}
			run(t, w, Options{}, func(watcher *Watcher[metricsv1.PodMetrics]) {
				var changes []string
				go func() {
					for change := range watcher.Changes() { // until Run ends
						if o := change.Object; o.Name != "busy" {
							changes = append(changes, fmt.Sprintf("%v %s %s=%v",
								time.Since(w.began), change.Type, o.Name, o.Containers[0].Usage.Cpu()))
						}
					}
				}()
				w.at(100 * time.Second)
				wantHeld(t, watcher, c.wantHeld)
				w.at(190 * time.Second)
				if diff := cmp.Diff(c.wantChanges, changes); diff != "" {
					t.Error(diff)
				}
				watcher.store.mu.RLock()
				defer watcher.store.mu.RUnlock()
				if got := len(watcher.store.entries); got != c.wantEntries {
					t.Errorf("%d entries after twice MaxAge, want %d", got, c.wantEntries)
				}
			})
		})
	}
}
