// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestConcurrent is for the race detector, and checks what each reader may rely
// on: order, and objects whose parts belong together.
func TestConcurrent(t *testing.T) {
	const namespaces, pods, rounds = 3, 20, 100
	store, _ := newStore()
	key := func(ns, pod int) Key { return Key{fmt.Sprintf("ns%d", ns), fmt.Sprintf("p%02d", pod)} }

	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for ns := range namespaces {
		writers.Go(func() { // a kubelet
			for round := range rounds {
				updates := make([]Update, pods)
				for i := range updates {
					updates[i] = Update{key(ns, i), sample(fmt.Sprintf("n%d", ns), 0, round)}
				}
				store.Pods.Publish(updates)
			}
		})
		writers.Go(func() { // the informer
			for round := range rounds {
				k := key(ns, round%pods)
				store.Pods.SetMeta(k, &Meta{UID: types.UID(k.Name)})
				if round%7 == 0 {
					store.Pods.DeleteMeta(k)
				}
			}
			for i := range pods {
				store.Pods.SetMeta(key(ns, i), &Meta{UID: types.UID(key(ns, i).Name)})
			}
		})
	}
	writers.Go(func() {
		for range rounds {
			store.Pods.Sweep()
			store.SetMaxAge(maxAge)
		}
	})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				last := Key{}
				for o := range store.Pods.List("", Key{}) {
					if last.Compare(o.Key) >= 0 {
						t.Errorf("%v is listed after %v", o.Key, last)
						return
					}
					last = o.Key
					if string(o.Meta.UID) != o.Name || o.Point.Node != "n"+o.Namespace[2:] {
						t.Errorf("parts of different objects: %+v", o)
						return
					}
					_, _ = o.Encoded(EncodingJSON, func(o *Object) ([]byte, error) { return []byte(o.Name), nil })
					_ = store.Pods.Get(o.Key)
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()

	for ns := range namespaces {
		store.Pods.Publish([]Update{{key(ns, 0), sample(fmt.Sprintf("n%d", ns), 1000, rounds)}})
		if store.Pods.Get(key(ns, 0)) == nil {
			t.Errorf("no point of %v after all writers have ended", key(ns, 0))
		}
	}
}
