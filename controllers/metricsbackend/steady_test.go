// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stored returns resourceVersion and managedFields of every object, by kind and name.
func (fc *fakeCluster) stored() map[string]string {
	fc.t.Helper()
	found := map[string]string{}
	fc.eachStored(func(kind string, o client.Object) {
		found[kind+" "+client.ObjectKeyFromObject(o).String()] = fmt.Sprintf("%s %+v", o.GetResourceVersion(), o.GetManagedFields())
	})
	return found
}

// Nothing changes by itself: in an hour without events, with a pass each minute and at
// each resync of informers, every object keeps its resourceVersion and managedFields.
// GitOps tools and informers would see each write.
func TestSteadyHour(t *testing.T) {
	t.Parallel()
	nothing := func(*fakeCluster) {}
	cases := map[string]struct {
		// begin is the start, and happen leads to a lasting state, good or bad.
		begin, happen func(*fakeCluster)
	}{
		"ready":                      {becomeReady, nothing},
		"an adopted APIService":      {adoptedCluster, nothing},
		"an existing implementation": {existingCluster, nothing},
		"requests fail":              {becomeReady, func(fc *fakeCluster) { fc.refused = true }},
		"old samples":                {becomeReady, func(fc *fakeCluster) { fc.stale = true }},
		"mute pods":                  {becomeReady, func(fc *fakeCluster) { fc.unresponsive = true }},
		"stalled":                    {becomeReady, func(fc *fakeCluster) { pullSecret(fc) }},
		"a version kept for its clients": {becomeReady, func(fc *fakeCluster) {
			fc.consumers = everyPod(hpaOf("v1beta1.metrics.k8s.io", fc.today()))
			fc.change(onlyV1)
		}},
		"an image that lacks v1": {becomeReady, func(fc *fakeCluster) {
			specOf(imageV1beta1, "v1", "v1beta1")(fc)
		}},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend())
			tc.begin(fc)
			var writes []string
			r := fc.reconciler(intercepted(func(c call, make func() error) error {
				if c.write && c.name != "create token" {
					writes = append(writes, c.name)
				}
				return make()
			}))
			tc.happen(fc)
			fc.reconcileRounds(r, 30)
			before := fc.stored()
			writes = nil
			for _, name := range []string{"MetricsBackend /" + backendName, "APIService /v1beta1.metrics.k8s.io"} {
				if before[name] == "" {
					t.Fatalf("no %s among %v", name, slices.Sorted(maps.Keys(before)))
				}
			}
			var looks int
			for end := fc.clock.Now().Add(time.Hour); fc.clock.Now().Before(end); looks++ {
				result, err := reconcileOnce(t, r)
				fc.must(err)
				if result.RequeueAfter == 0 {
					t.Fatal("never looks again")
				}
				// A resync passes all objects, changed or not.
				_, err = reconcileOnce(t, r)
				fc.must(err)
				fc.clock.Step(result.RequeueAfter)
			}
			if looks < 60 || name == "ready" && looks != int(time.Hour/resync) {
				t.Errorf("%d looks in an hour", looks)
			}
			if len(writes) > 0 {
				t.Errorf("requests that would write: %v", writes)
			}
			if diff := cmp.Diff(before, fc.stored()); diff != "" {
				t.Errorf("written in an hour in which nothing happened (-before +after):\n%s\n%s", diff, fc.show())
			}
		})
	}
}
