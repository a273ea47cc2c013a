// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// PreviousOwner is the state of an APIService before its adoption.
type PreviousOwner v1alpha1.PreviousOwner

// RecordOwner returns the present state of an APIService, with the labels that ours
// replace.
func RecordOwner(service *apiregistrationv1.APIService, ours map[string]string) PreviousOwner {
	caBundle, _ := CutAuthority(service.Spec.CABundle, "")
	before := PreviousOwner{
		Service: v1alpha1.ExistingService{
			Namespace: service.Spec.Service.Namespace, Name: service.Spec.Service.Name,
			Port: ptr.To(ptr.Deref(service.Spec.Service.Port, manifests.ServicePort)),
		},
		CABundle:              caBundle,
		InsecureSkipTLSVerify: service.Spec.InsecureSkipTLSVerify,
		GroupPriorityMinimum:  service.Spec.GroupPriorityMinimum,
		VersionPriority:       service.Spec.VersionPriority,
		Labels:                map[string]*string{},
	}
	for key := range ours {
		before.Labels[key] = nil
		if value, ok := service.Labels[key]; ok {
			before.Labels[key] = &value
		}
	}
	return before
}

// ReadPreviousOwner returns the recorded state, with the authority that another manager has written since, together with
// the previous Service: charts may make a new one at each upgrade. It validates the record, since anyone may have written
// the annotation.
func ReadPreviousOwner(service *apiregistrationv1.APIService) (*PreviousOwner, error) {
	var before PreviousOwner
	if err := json.Unmarshal([]byte(service.Annotations[v1alpha1.AnnotationPreviousOwner]), &before); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", v1alpha1.AnnotationPreviousOwner, err)
	}
	var errs []error
	for what, wrong := range map[string][]string{
		"service.namespace": validation.IsDNS1123Label(before.Service.Namespace),
		"service.name":      validation.IsDNS1123Label(before.Service.Name),
		"service.port":      validation.IsValidPortNum(int(ptr.Deref(before.Service.Port, manifests.ServicePort))),
		// The ranges that kube-apiserver accepts.
		"groupPriorityMinimum": validation.IsInRange(int(before.GroupPriorityMinimum), 1, 20000),
		"versionPriority":      validation.IsInRange(int(before.VersionPriority), 1, 1000),
	} {
		for _, why := range wrong {
			errs = append(errs, fmt.Errorf("%s %s", what, why))
		}
	}
	if before.InsecureSkipTLSVerify && len(before.CABundle) > 0 {
		errs = append(errs, errors.New("caBundle is set although insecureSkipTLSVerify is"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", v1alpha1.AnnotationPreviousOwner, err)
	}
	if _, changed := ChangedBy(service, CABundleField); changed && len(service.Spec.CABundle) > 0 && (Identity{Target: before.Target()}).PointsToTarget(service) {
		before.CABundle, before.InsecureSkipTLSVerify = service.Spec.CABundle, service.Spec.InsecureSkipTLSVerify
	}
	before.CABundle, _ = CutAuthority(before.CABundle, "")
	return &before, nil
}

func (o *PreviousOwner) Target() manifests.Target {
	return manifests.Target{
		Namespace: o.Service.Namespace, Name: o.Service.Name, Port: ptr.Deref(o.Service.Port, manifests.ServicePort),
		CABundle: o.CABundle, InsecureSkipTLSVerify: o.InsecureSkipTLSVerify,
	}
}

// Restore sets the recorded state in the APIService.
func (o *PreviousOwner) Restore(service *apiregistrationv1.APIService) {
	service.Spec.Service = o.Target().Reference()
	service.Spec.CABundle, service.Spec.InsecureSkipTLSVerify = o.CABundle, o.InsecureSkipTLSVerify
	service.Spec.GroupPriorityMinimum, service.Spec.VersionPriority = o.GroupPriorityMinimum, o.VersionPriority
	service.Annotations = maps.Clone(service.Annotations)
	delete(service.Annotations, v1alpha1.AnnotationPreviousOwner)
	delete(service.Annotations, v1alpha1.AnnotationUnverified)
	labels := map[string]string{}
	maps.Copy(labels, service.Labels)
	for key, value := range o.Labels {
		delete(labels, key)
		if value != nil {
			labels[key] = *value
		}
	}
	// Whatever the annotation says: with our label it would not be theirs.
	delete(labels, v1alpha1.LabelBackend)
	delete(labels, v1alpha1.LabelInstallation)
	service.Labels = labels
}

// AdoptedFrom describes the previous owner of an APIService for its status, or returns
// "".
func AdoptedFrom(service *apiregistrationv1.APIService) string {
	if !metav1.HasAnnotation(service.ObjectMeta, v1alpha1.AnnotationPreviousOwner) {
		return ""
	}
	before, err := ReadPreviousOwner(service)
	if err != nil {
		return "taken over, and cannot be handed back: " + err.Error()
	}
	return fmt.Sprintf("taken over from Service %s, to which it is handed back%s", before.Target(), ManagedBy(service))
}

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
