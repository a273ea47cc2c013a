// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"maps"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestMain collects garbage less often: the tests make a lot, and keep little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// snapshots holds worlds that many tests begin with, by name: what leads there is
// done once.
var snapshots sync.Map

type snapshot struct {
	once    sync.Once
	taken   bool
	world   *world
	objects []client.Object
	applies map[objectKey]*apply
	now     time.Time
}

// prepared returns a world in the state to which prepare brings a new one. It is
// called once for all worlds of one name.
func prepared(t *testing.T, name string, prepare func(*world)) *world {
	t.Helper()
	known, _ := snapshots.LoadOrStore(name, &snapshot{})
	s := known.(*snapshot)
	s.once.Do(func() {
		w := newWorld(t, newBackend())
		prepare(w)
		s.take(w)
	})
	if !s.taken {
		t.Fatalf("world %q could not be prepared, see the first test that begins with it", name)
	}
	return s.restore(t)
}

func (s *snapshot) take(w *world) {
	s.world, s.now, s.applies = w.clone(), w.clock.Now(), maps.Clone(w.memo.applies)
	w.eachStored(func(_ string, o client.Object) { s.objects = append(s.objects, o) })
	s.taken = true
}

func (s *snapshot) restore(t *testing.T) *world {
	t.Helper()
	w := s.world.clone()
	w.t = t
	w.clock = testingclock.NewFakeClock(s.now)
	objects := make([]client.Object, len(s.objects))
	for i := range s.objects {
		objects[i] = s.objects[i].DeepCopyObject().(client.Object)
	}
	w.start(objects)
	w.memo.applies = maps.Clone(s.applies)
	return w
}

// clone returns the same world, on the same API server.
func (w *world) clone() *world {
	clone := *w
	clone.discovered, clone.second, clone.lagging = maps.Clone(w.discovered), maps.Clone(w.second), maps.Clone(w.lagging)
	clone.ended, clone.gatedUntil = maps.Clone(w.ended), maps.Clone(w.gatedUntil)
	clone.theirs, clone.certs, clone.replicas = w.theirs.clone(), w.certs.clone(), cloneReplicas(w.replicas)
	return &clone
}

// eachStored calls do with each object that there is and its kind. The objects have
// managedFields, which the memory does not know.
func (w *world) eachStored(do func(kind string, o client.Object)) {
	w.t.Helper()
	for _, kinds := range kindsOfTheWorld() {
		for _, kind := range kinds {
			list, ok := kind.(client.ObjectList)
			if !ok {
				continue
			}
			gvk, err := w.server.GroupVersionKindFor(list)
			w.must(err)
			w.must(w.server.List(context.Background(), list))
			w.must(meta.EachListItem(list, func(o runtime.Object) error {
				do(strings.TrimSuffix(gvk.Kind, "List"), o.(client.Object))
				return nil
			}))
		}
	}
}

func cloneReplicas(replicas []*replica) []*replica {
	var out []*replica
	for _, r := range replicas {
		out = append(out, ptr.To(*r))
	}
	return out
}
