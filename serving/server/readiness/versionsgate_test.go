// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
)

var (
	metricsV1      = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	metricsV1beta1 = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	customV1beta2  = schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}
)

// registrations is the result of Registered.
type registrations struct {
	versions []schema.GroupVersion
	err      error
}

// peers maps the address of a ready pod to the versions that it serves; nil if it does not
// answer.
type peers map[string][]schema.GroupVersion

type fakeService struct {
	registrations
	peers
}

func (f registrations) Registered(context.Context) ([]schema.GroupVersion, error) {
	return f.versions, f.err
}

func (f peers) ReadyPeers(context.Context) ([]string, error) {
	if f == nil {
		return nil, errors.New("EndpointSlices are forbidden")
	}
	return slices.Sorted(maps.Keys(f)), nil
}

func (f peers) Serves(_ context.Context, address string, version schema.GroupVersion) (bool, error) {
	if f[address] == nil {
		return false, errors.New("connection refused")
	}
	return slices.Contains(f[address], version), nil
}

func TestVersionsGate(t *testing.T) {
	old := []schema.GroupVersion{metricsV1beta1}
	both := []schema.GroupVersion{metricsV1, metricsV1beta1}
	tests := map[string]struct {
		registered registrations
		peers      peers
		// wantErr lists what the reason must mention; empty for open.
		wantErr []string
	}{
		"nothing is registered":            {peers: peers{"10.0.0.1:10443": both}},
		"all that is registered is served": {registered: registrations{versions: old}, peers: peers{"10.0.0.1:10443": both}},
		"peers are not asked needlessly":   {registered: registrations{versions: old}},
		"a ready peer serves what this pod does not": {
			registered: registrations{versions: both}, peers: peers{"10.0.0.1:10443": old, "10.0.0.2:10443": both},
			wantErr: []string{"metrics.k8s.io/v1 is registered", "10.0.0.2:10443", "APIService v1.metrics.k8s.io"},
		},
		"no ready peer serves it either": {registered: registrations{versions: both}, peers: peers{"10.0.0.1:10443": old}},
		"there is no ready peer":         {registered: registrations{versions: both}, peers: peers{}},
		"a peer does not answer": {
			registered: registrations{versions: both}, peers: peers{"10.0.0.1:10443": nil},
			wantErr: []string{"10.0.0.1:10443", "connection refused"},
		},
		"one of several missing versions is served": {
			registered: registrations{versions: []schema.GroupVersion{metricsV1, customV1beta2}},
			peers:      peers{"10.0.0.1:10443": {customV1beta2}},
			wantErr:    []string{"custom.metrics.k8s.io/v1beta2"},
		},
		"registrations cannot be read": {
			registered: registrations{err: errors.New("forbidden")}, peers: peers{},
			wantErr: []string{"forbidden"},
		},
		"peers cannot be read": {
			registered: registrations{versions: both}, wantErr: []string{"EndpointSlices are forbidden"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := &VersionsGate{service: fakeService{tc.registered, tc.peers}, served: sets.New(old...), clock: testingclock.NewFakePassiveClock(time.Unix(0, 0))}
			err := g.Check(t.Context())
			if len(tc.wantErr) == 0 {
				if err != nil {
					t.Fatalf("closed: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("open")
			}
			for _, part := range tc.wantErr {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("reason %q does not mention %q", err, part)
				}
			}
		})
	}
}

// A pod that waited becomes ready only after discovery has followed: a client that read the
// version a moment ago may still request it.
func TestVersionsGateWaitsForDiscovery(t *testing.T) {
	c := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	both := registrations{versions: []schema.GroupVersion{metricsV1, metricsV1beta1}}
	old := registrations{versions: []schema.GroupVersion{metricsV1beta1}}
	ready := peers{"10.0.0.1:10443": {metricsV1, metricsV1beta1}}
	g := &VersionsGate{served: sets.New(metricsV1beta1), clock: c, missingAt: c.Now()}
	steps := []struct {
		after      time.Duration
		registered registrations
		want       string
	}{
		// What was retired just before this process began may still be listed.
		{time.Second, old, "it takes traffic once that has been so for 10s"},
		{0, both, "it takes no traffic until APIService v1.metrics.k8s.io is removed"},
		{discoveryDelay - time.Second, old, "it takes traffic once that has been so for 10s"},
		// It is registered again: the wait starts over.
		{0, both, "it takes no traffic until APIService v1.metrics.k8s.io is removed"},
		{time.Second, old, "it takes traffic once that has been so for 10s"},
		{discoveryDelay, old, ""},
	}
	for i, step := range steps {
		c.SetTime(c.Now().Add(step.after))
		g.service = fakeService{step.registered, ready}
		err := g.Check(t.Context())
		if open := err == nil; open != (step.want == "") || !open && !strings.Contains(err.Error(), step.want) {
			t.Errorf("step %d: got %v, want %q", i, err, step.want)
		}
	}

	// The gate does not wait while no other pod takes traffic.
	g.missingAt, g.service = c.Now(), fakeService{old, peers{}}
	if err := g.Check(t.Context()); err != nil {
		t.Errorf("the first of all pods waits: %v", err)
	}
}
