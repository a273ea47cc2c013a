// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
)

// temporaryPort is in kube-apiserver's message about an APIService that it cannot reach,
// and changes with each attempt.
const temporaryPort = "41234"

// outage is a failure outside of the operator.
type outage struct {
	happens func(*fakeCluster)
	// condition reports it, with the reason and a part of the message, after lasts.
	condition, reason, message string
	lasts                      time.Duration
	// ends ends the fault.
	ends func(*fakeCluster)
}

func externalFaults() map[string]outage {
	available := func(fc *fakeCluster, status apiregistrationv1.ConditionStatus, reason string) {
		for _, service := range fc.apiServices() {
			fc.setAvailable(&service, status, reason)
		}
	}
	passes := func(fc *fakeCluster) { available(fc, apiregistrationv1.ConditionTrue, "Passed") }
	return map[string]outage{
		"the Service has no endpoints": {
			happens:   func(fc *fakeCluster) { available(fc, apiregistrationv1.ConditionFalse, "MissingEndpoints") },
			condition: v1alpha1.ConditionAvailable, reason: v1alpha1.ReasonAggregatorUnavailable, message: "(MissingEndpoints)",
			ends: passes,
		},
		"kube-apiserver cannot reach the pods": {
			happens:   func(fc *fakeCluster) { available(fc, apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck") },
			condition: v1alpha1.ConditionAvailable, reason: v1alpha1.ReasonAggregatorUnavailable,
			message: "(FailedDiscoveryCheck): kubectl describe apiservice v1beta1.metrics.k8s.io. kube-apiserver must be able to open TCP connections " +
				"to port 10250 of the serving pods: if there is a firewall, allow them from the control plane to the nodes (docs/start/requirements.md, Firewalls)",
			ends: passes,
		},
		"the operator cannot reach the pods": {
			happens:   func(fc *fakeCluster) { fc.unresponsive = true },
			condition: v1alpha1.ConditionServingReady, reason: v1alpha1.ReasonProbeFailed, message: "a NetworkPolicy must let the operator's pod connect",
			lasts: servingGrace, ends: func(fc *fakeCluster) { fc.unresponsive = false },
		},
		"requests through kube-apiserver fail": {
			happens:   func(fc *fakeCluster) { fc.refused = true },
			condition: v1alpha1.ConditionAvailable, reason: v1alpha1.ReasonRequestFailed,
			message: "v1.metrics.k8s.io does not answer through kube-apiserver: ServiceUnavailable",
			lasts:   requestGrace, ends: func(fc *fakeCluster) { fc.refused = false },
		},
		"no kubelet was scraped for long": {
			happens:   func(fc *fakeCluster) { fc.stale = true },
			condition: v1alpha1.ConditionAvailable, reason: v1alpha1.ReasonNoFreshSample,
			message: "no node has a sample younger than 1m30s: see SourcesHealthy",
			ends:    func(fc *fakeCluster) { fc.stale = false },
		},
	}
}

// Each fault is reported in a condition, never violates the invariant and removes no
// version from discovery. Once it is over, everything is as before.
func TestFaultsOutside(t *testing.T) {
	t.Parallel()
	for name, f := range externalFaults() {
		t.Run(name, func(t *testing.T) {
			fc, r := ready(t)
			want := fc.endState()
			f.happens(fc)
			fc.advance(r, f.lasts+10*time.Second)
			fc.wantCondition(f.condition, metav1.ConditionFalse, f.reason, f.message)
			fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, "")
			if message := fc.condition(f.condition).Message; strings.Contains(message, temporaryPort) {
				t.Errorf("the message holds a temporary port: %s", message)
			}
			fc.wantRegistered("v1", "v1beta1")
			f.ends(fc)
			fc.reconcileUntil(r, fc.isReady)
			if diff := gocmp.Diff(want, fc.endState()); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
		})
	}
}

// The operator's objects are deleted by hand: one by one, in pairs, and all at once, in
// different orders. All are created again, and none is left over.
func TestChildrenDeletedInAnyOrder(t *testing.T) {
	t.Parallel()
	fc, _ := ready(t)
	count := len(fc.ownedObjects())
	if count < 12 {
		t.Fatalf("only %d objects are owned", count)
	}
	deleteAll := func(t *testing.T, pick []int) {
		t.Helper()
		fc, r := ready(t)
		owned := fc.ownedObjects()
		want := fc.endState()
		var names []string
		for _, i := range pick {
			object := owned[i]
			names = append(names, object.Kind+" "+object.Name)
			if err := fc.raw.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
				t.Fatal(err)
			}
			mustReconcile(t, r)
			fc.checkInvariant("after " + strings.Join(names, ", ") + " was deleted")
			fc.step()
		}
		fc.reconcileUntil(r, func() bool { return fc.isReady() && fc.endState() == want })
		if t.Failed() {
			t.Fatalf("deleted %s", strings.Join(names, ", "))
		}
	}
	for i := 0; i < count; i += shortened(1, 6) {
		t.Run(fc.ownedObjects()[i].Kind+" "+fc.ownedObjects()[i].Name, func(t *testing.T) { deleteAll(t, []int{i}) })
	}
	t.Run("in any order", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // an order, not a secret
		for range shortened(12, 2) {
			deleteAll(t, random.Perm(count)[:1+random.IntN(count)])
		}
	})
}

// ownedObjects returns the metadata of all objects with the backend's label, except pods
// and what their controllers own.
func (fc *fakeCluster) ownedObjects() []*metav1.PartialObjectMetadata {
	var owned []*metav1.PartialObjectMetadata
	kinds := append(inventory.Removable(), inventory.Kind{GroupVersionKind: apiServiceKind})
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		fc.list(list, client.MatchingLabels{v1alpha1.LabelBackend: backendName})
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind.GroupVersionKind)
			owned = append(owned, object)
		}
	}
	return owned
}
