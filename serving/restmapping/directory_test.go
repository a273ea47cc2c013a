// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package restmapping

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
)

// server answers discovery.
type server struct {
	discovery.DiscoveryInterfaceWithContext
	mu     sync.Mutex
	groups []*metav1.APIGroup
	lists  []*metav1.APIResourceList
	err    error
	asked  int
	// perGroup answers if groups are asked for one by one.
	perGroup *server
}

func (s *server) install(g *metav1.APIGroup, l *metav1.APIResourceList) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups, s.lists = append(s.groups, g), append(s.lists, l)
}

func (s *server) refreshes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *server) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.groups, s.lists, s.err
}

func (s *server) WithLegacyWithContext(context.Context) discovery.DiscoveryInterfaceWithContext {
	return cmp.Or(s.perGroup, s)
}

// If the document of all groups is too long, each group is asked for.
func TestTooLongDocument(t *testing.T) {
	s := &server{err: errors.New("the response has more than 33554432 bytes"), perGroup: &server{}}
	s.perGroup.groups, s.perGroup.lists = world()
	d := NewDirectory(s, clock.RealClock{})
	if err := d.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d.Current().Empty() {
		t.Error("no resource is known")
	}
}

// Names of metrics are no resources: a team's metric called "code" must not make an object of each series with
// that label, and one that comes is no change.
func TestNamesOfMetricsAreNoResources(t *testing.T) {
	s := &server{}
	s.groups, s.lists = world()
	d := NewDirectory(s, clock.RealClock{})
	changes := 0
	d.OnChange(func(*Mapper) { changes++ })
	refresh := func() {
		t.Helper()
		if err := d.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	s.install(group("external.metrics.k8s.io", "v1beta1"), list("external.metrics.k8s.io/v1beta1", resource("code", "", "ExternalMetricValueList")))
	refresh()
	s.install(group("custom.metrics.k8s.io", "v1beta2"), list("custom.metrics.k8s.io/v1beta2", resource("pods/hits", "", "MetricValueList")))
	refresh()
	for _, name := range []string{"code", "externalmetricvaluelist"} {
		if r, ok := d.Find(schema.GroupResource{Resource: name}); ok {
			t.Errorf("%s is %v", name, r)
		}
	}
	if changes != 1 {
		t.Errorf("%d changes, want the first", changes)
	}
	s.install(group("batch", "v1"), list("batch/v1", resource("jobs", "job", "Job")))
	refresh()
	if _, ok := d.Find(schema.GroupResource{Resource: "jobs"}); !ok || changes != 2 {
		t.Errorf("jobs are not known after %d changes", changes)
	}
}

func TestDirectoryLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &server{}
		s.groups, s.lists = world()
		d := NewDirectory(s, clock.RealClock{})
		var changes atomic.Int32
		d.OnChange(func(*Mapper) { changes.Add(1) })
		if !d.Current().Empty() {
			t.Error("it knows something before it ran")
		}
		go d.Run(ctx)
		synctest.Wait()
		if _, ok := d.Find(schema.GroupResource{Resource: "pods"}); !ok || changes.Load() != 1 {
			t.Errorf("pods are not known after %d changes", changes.Load())
		}
		jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
		if _, ok := d.Find(jobs); ok {
			t.Error("jobs are known")
		}
		s.install(group("batch", "v1"), list("batch/v1", resource("jobs", "job", "Job")))
		time.Sleep(minRefreshInterval + time.Second)
		synctest.Wait()
		if _, ok := d.Find(jobs); !ok || changes.Load() != 2 {
			t.Errorf("jobs are not known after %d changes", changes.Load())
		}
		// Asking for what does not exist costs no more than one refresh each minRefreshInterval.
		asked := s.refreshes()
		for range 60 {
			for range 100 {
				d.Find(schema.GroupResource{Resource: "nonsense"})
			}
			time.Sleep(time.Second)
		}
		if n := s.refreshes() - asked; n < 2 || n > 14 {
			t.Errorf("%d refreshes in a minute", n)
		}
		if changes.Load() != 2 {
			t.Errorf("%d changes without a change", changes.Load())
		}
		asked = s.refreshes()
		time.Sleep(10 * refreshInterval)
		// A refresh that was requested, and one that is due, may be left over from before.
		if n := s.refreshes() - asked; n < 9 || n > 12 {
			t.Errorf("%d refreshes in ten minutes", n)
		}
		cancel()
		synctest.Wait()
	})
}

func TestDirectoryKeepsWhatFails(t *testing.T) {
	s := &server{}
	s.groups, s.lists = world()
	d := NewDirectory(s, clock.RealClock{})
	if err := d.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	brands := schema.GroupResource{Group: "cheese.io", Resource: "brands"}
	all := s.lists
	s.lists = all[:4]
	s.err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
		{Group: "cheese.io", Version: "v2"}: errors.New("stale"), {Group: "cheese.io", Version: "v1"}: errors.New("stale"),
	}}
	if err := d.Refresh(t.Context()); err == nil {
		t.Error("no error of a group that fails")
	}
	if r, ok := d.Find(brands); !ok || r.Kind.Version != "v2" {
		t.Errorf("what a group had is gone: %v", r)
	}
	if _, ok := d.Find(schema.GroupResource{Resource: "ingresses"}); ok {
		t.Error("what is no longer served is still known")
	}
	s.groups, s.lists, s.err = nil, nil, errors.New("down")
	if err := d.Refresh(t.Context()); err == nil {
		t.Error("no error of a server that is down")
	}
	if _, ok := d.Find(brands); !ok {
		t.Error("everything is gone")
	}
	s.err = nil
	if err := d.Refresh(t.Context()); err == nil {
		t.Error("no error of an empty answer")
	}
}
