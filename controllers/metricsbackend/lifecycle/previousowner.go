// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
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
	if _, changed := apiservices.ChangedBy(service, v1alpha1.FieldOwner, apiservices.CABundleField); changed && len(service.Spec.CABundle) > 0 && (Identity{Target: before.Target()}).PointsToTarget(service) {
		before.CABundle, before.InsecureSkipTLSVerify = service.Spec.CABundle, service.Spec.InsecureSkipTLSVerify
	}
	before.CABundle, _ = CutAuthority(before.CABundle, "")
	return &before, nil
}

// Target returns where the APIService pointed.
func (o *PreviousOwner) Target() manifests.Target {
	return manifests.ExistingTarget(&v1alpha1.ExistingSpec{Service: o.Service, CABundle: o.CABundle, InsecureSkipTLSVerify: o.InsecureSkipTLSVerify})
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
	return fmt.Sprintf("taken over from Service %s, to which it is handed back%s", before.Target(), apiservices.ManagedBy(service))
}
