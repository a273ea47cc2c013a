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

// TestMain collects garbage less often: the tests allocate a lot and keep little.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// snapshots holds clusters that many tests start from, by name, so that each is prepared
// once.
var snapshots sync.Map

type snapshot struct {
	once    sync.Once
	taken   bool
	cluster *fakeCluster
	objects []client.Object
	memo    *memoClient
	now     time.Time
}

// prepared returns a copy of the cluster that prepare makes of a new one. It calls
// prepare once for all clusters of a name.
func prepared(t *testing.T, name string, prepare func(*fakeCluster)) *fakeCluster {
	t.Helper()
	known, _ := snapshots.LoadOrStore(name, &snapshot{})
	s := known.(*snapshot)
	s.once.Do(func() {
		fc := newFakeCluster(t, newBackend())
		prepare(fc)
		s.take(fc)
	})
	if !s.taken {
		t.Fatalf("cluster %q could not be prepared, see the first test that starts with it", name)
	}
	return s.restore(t)
}

func (s *snapshot) take(fc *fakeCluster) {
	s.cluster, s.now, s.memo = fc.clone(), fc.clock.Now(), fc.memo.clone()
	fc.eachStored(func(_ string, o client.Object) { s.objects = append(s.objects, o) })
	s.taken = true
}

func (s *snapshot) restore(t *testing.T) *fakeCluster {
	t.Helper()
	fc := s.cluster.clone()
	fc.t = t
	fc.clock = testingclock.NewFakeClock(s.now)
	objects := make([]client.Object, len(s.objects))
	for i := range s.objects {
		objects[i] = s.objects[i].DeepCopyObject().(client.Object)
	}
	fc.start(objects)
	fc.memo.copy(s.memo)
	return fc
}

// clone returns a copy of the cluster on the same API server.
func (fc *fakeCluster) clone() *fakeCluster {
	clone := *fc
	clone.discovered, clone.secondDiscovery, clone.lagging = maps.Clone(fc.discovered), maps.Clone(fc.secondDiscovery), maps.Clone(fc.lagging)
	clone.stepsTerminating, clone.gatedUntil, clone.moved = maps.Clone(fc.stepsTerminating), maps.Clone(fc.gatedUntil), maps.Clone(fc.moved)
	clone.other, clone.certs, clone.replicas = fc.other.clone(), fc.certs.clone(), cloneReplicas(fc.replicas)
	clone.views, clone.times = nil, maps.Clone(fc.times)
	for _, v := range fc.views {
		clone.views = append(clone.views, v.clone())
	}
	return &clone
}

// eachStored calls do with each object and its kind. The objects have managedFields,
// unlike those of memoClient.
func (fc *fakeCluster) eachStored(do func(kind string, o client.Object)) {
	fc.t.Helper()
	for _, kinds := range testKinds() {
		for _, kind := range kinds {
			list, ok := kind.(client.ObjectList)
			if !ok {
				continue
			}
			gvk, err := fc.server.GroupVersionKindFor(list)
			fc.must(err)
			fc.must(fc.server.List(context.Background(), list))
			fc.must(meta.EachListItem(list, func(o runtime.Object) error {
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
