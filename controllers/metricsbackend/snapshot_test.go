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
	world   world
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
	s.world = *w
	s.world.discovered, s.world.second = maps.Clone(w.discovered), maps.Clone(w.second)
	s.world.lagging, s.world.ended, s.world.gatedUntil = maps.Clone(w.lagging), maps.Clone(w.ended), maps.Clone(w.gatedUntil)
	s.world.theirs, s.world.certs, s.world.replicas = w.theirs.clone(), w.certs.clone(), cloneReplicas(w.replicas)
	s.now = w.clock.Now()
	s.applies = maps.Clone(w.memo.applies)
	known, err := schemaOfTheWorld()
	w.must(err)
	for gv, kinds := range kindsOfTheWorld() {
		for _, kind := range kinds {
			gvk, err := w.raw.GroupVersionKindFor(kind)
			w.must(err)
			if !strings.HasSuffix(gvk.Kind, "List") {
				continue
			}
			list, err := known.kinds.New(gv.WithKind(gvk.Kind))
			w.must(err)
			// Around the memory, which knows no managedFields.
			w.must(w.server.List(context.Background(), list.(client.ObjectList)))
			w.must(meta.EachListItem(list, func(o runtime.Object) error {
				s.objects = append(s.objects, o.(client.Object))
				return nil
			}))
		}
	}
	s.taken = true
}

func (s *snapshot) restore(t *testing.T) *world {
	t.Helper()
	w := s.world
	w.t = t
	w.clock = testingclock.NewFakeClock(s.now)
	w.discovered = maps.Clone(s.world.discovered)
	w.second = maps.Clone(s.world.second)
	w.lagging = maps.Clone(s.world.lagging)
	w.ended = maps.Clone(s.world.ended)
	w.gatedUntil = maps.Clone(s.world.gatedUntil)
	w.theirs = s.world.theirs.clone()
	w.certs = s.world.certs.clone()
	w.replicas = cloneReplicas(s.world.replicas)
	objects := make([]client.Object, len(s.objects))
	for i := range s.objects {
		objects[i] = s.objects[i].DeepCopyObject().(client.Object)
	}
	w.start(objects)
	w.memo.applies = maps.Clone(s.applies)
	return &w
}

func cloneReplicas(replicas []*replica) []*replica {
	var out []*replica
	for _, r := range replicas {
		out = append(out, ptr.To(*r))
	}
	return out
}
