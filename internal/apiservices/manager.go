// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiservices tells who writes an APIService, for the operator and the plugin.
package apiservices

import (
	"cmp"
	"fmt"
	"strings"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Manager is who applies an APIService, and so takes it back after a takeover.
type Manager struct {
	// Who is it, as in "Helm release keda/keda".
	Who string
	// Remedy is how it leaves the APIService alone.
	Remedy string
	// Reconciles: it writes the APIService back at any time, not only when its source changes.
	Reconciles bool
}

// managers find who applies an APIService: first who writes it at any time, then who applies what others render.
var managers = []struct {
	// who returns its name, or "".
	who        func(*apiregistrationv1.APIService) string
	remedy     string
	reconciles bool
}{
	{addonManager, "leave this API to it, by a spec without the section of its group; or switch the managed component off where the cluster is configured and delete what is left of it", true},
	{owner("OLM's ClusterServiceVersion", labelsOf, "olm.owner.namespace", "olm.owner"), "delete its Subscription and the ClusterServiceVersion", true},
	{owner("cert-manager for", annotationsOf, "", "cert-manager.io/inject-ca-from"), "take the annotation cert-manager.io/inject-ca-from off", true},
	{owner("cert-manager for", annotationsOf, "", "cert-manager.io/inject-ca-from-secret"), "take the annotation cert-manager.io/inject-ca-from-secret off", true},
	{
		owner("Flux' HelmRelease", labelsOf, "helm.toolkit.fluxcd.io/namespace", "helm.toolkit.fluxcd.io/name"),
		keepInRelease + "spec.postRenderers (a patch with $patch: delete)", false,
	},
	{
		owner("Flux' Kustomization", labelsOf, "kustomize.toolkit.fluxcd.io/namespace", "kustomize.toolkit.fluxcd.io/name"),
		"set its annotation kustomize.toolkit.fluxcd.io/prune to disabled, then leave it out by spec.patches ($patch: delete), or in Git", false,
	},
	{argoCD, "exclude it by resource.exclusions in ConfigMap argocd-cm", false},
	{owner("Helm release", annotationsOf, "meta.helm.sh/release-namespace", "meta.helm.sh/release-name"), keepInRelease + "helm upgrade --post-renderer", false},
}

// keepInRelease: Helm deletes what leaves a release, unless the annotation keeps it.
const keepInRelease = "set its annotation helm.sh/resource-policy to keep, then leave it out by a value of the chart, or by "

// ManagedBy returns who applies an APIService, as far as its labels, annotations and field managers tell, or the zero value.
func ManagedBy(service *apiregistrationv1.APIService) Manager {
	for _, m := range managers {
		if who := m.who(service); who != "" {
			return Manager{who, m.remedy, m.reconciles}
		}
	}
	return Manager{}
}

// String says who applies the APIService, and what to do about it; or returns "".
func (m Manager) String() string {
	if m.Who == "" {
		return ""
	}
	return fmt.Sprintf(". It is applied by %s, whose next change takes it back: %s", m.Who, m.Remedy)
}

func labelsOf(s *apiregistrationv1.APIService) map[string]string { return s.Labels }

func annotationsOf(s *apiregistrationv1.APIService) map[string]string { return s.Annotations }

// owner returns a function that names the owner which labels or annotations give, as WHAT NAMESPACE/NAME.
func owner(what string, of func(*apiregistrationv1.APIService) map[string]string, namespace, name string) func(*apiregistrationv1.APIService) string {
	return func(s *apiregistrationv1.APIService) string {
		all := of(s)
		if all[name] == "" {
			return ""
		}
		return what + " " + strings.TrimPrefix(all[namespace]+"/"+all[name], "/")
	}
}

// addonManager returns the add-on manager of a managed cluster: GKE's and AKS' go by the label, EKS' by its field manager.
func addonManager(s *apiregistrationv1.APIService) string {
	if s.Labels["addonmanager.kubernetes.io/mode"] == "Reconcile" {
		return "the cluster's add-on manager (label addonmanager.kubernetes.io/mode: Reconcile)"
	}
	for _, entry := range s.ManagedFields {
		if name := strings.ReplaceAll(entry.Manager, "-", ""); strings.Contains(name, "addonmanager") || name == "eks" {
			return fmt.Sprintf("the cluster's add-on manager (field manager %q)", entry.Manager)
		}
	}
	return ""
}

// argoCD returns the Application that tracks an APIService, by annotation, which is the default, or by label.
func argoCD(s *apiregistrationv1.APIService) string {
	name, _, _ := strings.Cut(s.Annotations["argocd.argoproj.io/tracking-id"], ":")
	name = cmp.Or(name, s.Labels["argocd.argoproj.io/instance"])
	for _, entry := range s.ManagedFields {
		if name == "" && strings.HasPrefix(entry.Manager, "argocd-") {
			name = s.Labels["app.kubernetes.io/instance"]
		}
	}
	if name == "" {
		return ""
	}
	return "Argo CD's Application " + name
}
