// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservices

import (
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// The marks are those of the real tools.
func TestManagedBy(t *testing.T) {
	t.Parallel()
	type marks struct {
		labels, annotations map[string]string
		manager             string
	}
	for name, tc := range map[string]struct {
		marks
		who        string
		reconciles bool
	}{
		"nobody": {},
		"kubectl, by hand": {
			marks{labels: map[string]string{"app.kubernetes.io/instance": "keda"}, manager: "kubectl-client-side-apply"}, "", false,
		},
		"Helm": {
			marks{annotations: map[string]string{"meta.helm.sh/release-name": "keda", "meta.helm.sh/release-namespace": "keda-system"}, manager: "helm"},
			"Helm release keda-system/keda", false,
		},
		"Flux' helm-controller": {
			marks{
				labels:      map[string]string{"helm.toolkit.fluxcd.io/name": "keda", "helm.toolkit.fluxcd.io/namespace": "flux-system"},
				annotations: map[string]string{"meta.helm.sh/release-name": "keda", "meta.helm.sh/release-namespace": "keda"}, manager: "helm-controller",
			}, "Flux' HelmRelease flux-system/keda", false,
		},
		"Flux' kustomize-controller": {
			marks{labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "infra", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}, manager: "kustomize-controller"},
			"Flux' Kustomization flux-system/infra", false,
		},
		"Argo CD, by annotation": {
			marks{annotations: map[string]string{"argocd.argoproj.io/tracking-id": "keda:apiregistration.k8s.io/APIService:keda/v1beta1.external.metrics.k8s.io"}},
			"Argo CD's Application keda", false,
		},
		"Argo CD, by a label of its own": {marks{labels: map[string]string{"argocd.argoproj.io/instance": "keda"}}, "Argo CD's Application keda", false},
		"Argo CD, by the common label": {
			marks{labels: map[string]string{"app.kubernetes.io/instance": "keda"}, manager: "argocd-controller"}, "Argo CD's Application keda", false,
		},
		"OLM": {
			marks{labels: map[string]string{"olm.owner": "keda.v2.18.1", "olm.owner.namespace": "keda", "olm.owner.kind": "ClusterServiceVersion"}},
			"OLM's ClusterServiceVersion keda/keda.v2.18.1", true,
		},
		"cert-manager, in a Helm release": {
			marks{annotations: map[string]string{"cert-manager.io/inject-ca-from": "keda/keda-operator-tls-certificates", "meta.helm.sh/release-name": "keda"}},
			"cert-manager for keda/keda-operator-tls-certificates", true,
		},
		"cert-manager, from a Secret": {marks{annotations: map[string]string{"cert-manager.io/inject-ca-from-secret": "keda/ca"}}, "cert-manager for keda/ca", true},
		"GKE's and AKS' add-on manager": {
			marks{labels: map[string]string{"addonmanager.kubernetes.io/mode": "Reconcile"}}, "the cluster's add-on manager (label addonmanager.kubernetes.io/mode: Reconcile)", true,
		},
		"an add-on that the manager only creates": {marks{labels: map[string]string{"addonmanager.kubernetes.io/mode": "EnsureExists"}}, "", false},
		"an add-on manager by its name":           {marks{manager: "kube-addon-manager"}, `the cluster's add-on manager (field manager "kube-addon-manager")`, true},
		"EKS":                                     {marks{manager: "eks"}, `the cluster's add-on manager (field manager "eks")`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ManagedBy(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{
				Labels: tc.labels, Annotations: tc.annotations, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: tc.manager}},
			}})
			if diff := gocmp.Diff(Manager{Who: tc.who, Remedy: got.Remedy, Reconciles: tc.reconciles}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(got.Remedy, "resourceMetrics") {
				t.Errorf("the remedy is for one group, and the APIService of any: %s", got.Remedy)
			}
			if (got.Who == "") != (got.Remedy == "") {
				t.Errorf("%+v", got)
			}
		})
	}
}
