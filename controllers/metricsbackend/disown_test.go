// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// An apply by another manager leaves our label. If it pointed the APIService elsewhere,
// the APIService stays as that manager wrote it, whatever its previous owner was.
func TestDisown(t *testing.T) {
	t.Parallel()
	clusters := map[string]func(*fakeCluster){"adopted": adoptedCluster, "beside another implementation": besideOther}
	lets := map[string]struct {
		happen func(*fakeCluster)
		done   func(*fakeCluster) bool
	}{
		"deleted": {
			happen: func(fc *fakeCluster) { fc.delete(fc.backend()) },
			done:   (*fakeCluster).isGone,
		},
		"version taken out of the spec": {
			happen: func(fc *fakeCluster) {
				fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
					spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{"v1"}
					spec.RemoveDespiteConsumers = []string{"v1beta1.metrics.k8s.io"}
				})
			},
			done: (*fakeCluster).isReady,
		},
	}
	for before, prepare := range clusters {
		for name, tc := range lets {
			t.Run(before+" "+name, func(t *testing.T) {
				fc := prepared(t, before, prepare)
				r := fc.live()
				fieldManagers()["server-side apply"](fc)
				// Its authority changed since: the recorded one would not verify it.
				other := fc.apiService(v1beta1)
				other.Spec.CABundle = []byte("THEIR NEW CA")
				fc.update(other, client.FieldOwner("gitops-controller"))
				tc.happen(fc)
				fc.reconcileUntil(r, func() bool { return tc.done(fc) && fc.apiService(v1beta1).Labels[v1alpha1.LabelBackend] == "" })
				got := fc.apiService(v1beta1)
				if got.UID != other.UID {
					t.Error("it was deleted and created again")
				}
				if diff := cmp.Diff(other.Spec, got.Spec); diff != "" {
					t.Errorf("spec (-theirs +left):\n%s", diff)
				}
				if diff := cmp.Diff(stockAPIService().Labels, got.Labels); diff != "" || len(got.Annotations) > 0 {
					t.Errorf("annotations %v, labels (-theirs +left):\n%s", got.Annotations, diff)
				}
				wantEvent(t, r, "VersionLeft", "left APIService v1beta1.metrics.k8s.io to the manager that pointed it to Service kube-system/metrics-server")
			})
		}
	}
}

// An APIService that we ourselves pointed elsewhere stays ours.
func TestIsRepointed(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	r := fc.live()
	for name, change := range map[string]func(*v1alpha1.MetricsBackendSpec){
		"as it is":         func(*v1alpha1.MetricsBackendSpec) {},
		"to our pods":      func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing = nil },
		"to another still": func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing.Service.Name = "another" },
	} {
		backend := fc.backend()
		change(&backend.Spec)
		if r.newState(backend).identity().IsRepointed(fc.apiService(v1beta1)) {
			t.Errorf("%s: taken for someone else's", name)
		}
	}
}
