// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// mayAdopt applies spec.adoption to an APIService without our label.
func (s *reconcileState) mayAdopt(gv schema.GroupVersion, service *apiregistrationv1.APIService) error {
	switch s.spec.Adoption {
	case v1alpha1.AdoptionAlways:
		return nil
	case v1alpha1.AdoptionIfUnavailable:
		left := adoptionGrace
		if checked := helper.GetAPIServiceConditionByType(service, apiregistrationv1.Available); checked != nil && checked.Status == apiregistrationv1.ConditionFalse {
			left -= s.now.Sub(checked.LastTransitionTime.Time)
			if left <= 0 {
				return nil
			}
			s.requeueWithin(left)
		}
		s.addConflict(gv, v1alpha1.ReasonNotOwned,
			"APIService %s belongs to someone else, it is served by %s, and spec.adoption is IfUnavailable: it is taken over once "+
				"kube-apiserver has reported it unavailable for %s; set spec.adoption: Always to take it over now", service.Name, describeTarget(service), adoptionGrace)
		return nil
	}
	return newStalledError(v1alpha1.ReasonNotOwned,
		"APIService %s belongs to someone else, it is served by %s: set spec.adoption to Always to take it over (it is handed back "+
			"when this MetricsBackend goes), or to IfUnavailable to take it over only if it does not answer; or remove that implementation "+
			"and its registration (kubectl delete apiservice %s); or take version %s out of %s",
		service.Name, describeTarget(service), service.Name, gv.Version, versionsField(gv))
}

// adoptAPIService points an existing APIService at the target and labels it as this
// backend's, in one write, so that it is never half-owned. The write carries the
// resourceVersion that was read, so that the recorded previous owner is the one that was
// replaced.
func (r *Reconciler) adoptAPIService(ctx context.Context, s *reconcileState, gv schema.GroupVersion, live *apiregistrationv1.APIService) error {
	from := describeTarget(live)
	record := live.Annotations[v1alpha1.AnnotationPreviousOwner]
	adopted := live.Labels[v1alpha1.LabelBackend] == ""
	if adopted {
		body, err := json.Marshal(recordOwner(live, s.serving.Labels()))
		if err != nil {
			return fmt.Errorf("record the owner of APIService %s: %w", live.Name, err)
		}
		record = string(body)
	}
	klog.FromContext(ctx).Info("Pointing an APIService at another Service", "apiService", live.Name, "from", from, "to", s.target().String(), "adopted", adopted)
	if err := r.applyAdoption(ctx, s, gv, live, record); err != nil {
		return fmt.Errorf("point APIService %s from %s to Service %s: %w", live.Name, from, s.target(), err)
	}
	if adopted {
		r.Events.Eventf(s.backend, live, corev1.EventTypeNormal, "VersionAdopted", "Register",
			"took APIService %s over from %s", live.Name, from)
	} else {
		r.Events.Eventf(s.backend, live, corev1.EventTypeNormal, "VersionMoved", "Register",
			"APIService %s points to Service %s now, and pointed to %s before", live.Name, s.target(), from)
	}
	return nil
}

func (r *Reconciler) applyAdoption(ctx context.Context, s *reconcileState, gv schema.GroupVersion, live *apiregistrationv1.APIService, record string) error {
	target := s.target()
	if target.InsecureSkipTLSVerify && len(live.Spec.CABundle) > 0 {
		// kube-apiserver rejects a caBundle beside insecureSkipTLSVerify, and an apply
		// cannot remove a caBundle that another manager owns too.
		return r.updateAdoption(ctx, s, live, target, record)
	}
	desired := manifests.APIService(s.serving, gv, target).WithResourceVersion(live.ResourceVersion).WithUID(live.UID)
	if record != "" {
		desired.WithAnnotations(map[string]string{v1alpha1.AnnotationPreviousOwner: record})
	}
	return r.Client.Apply(ctx, desired, client.FieldOwner(v1alpha1.FieldOwner), client.ForceOwnership)
}

// updateAdoption is applyAdoption by an update. The next pass applies the other fields.
func (r *Reconciler) updateAdoption(ctx context.Context, s *reconcileState, live *apiregistrationv1.APIService, target manifests.Target, record string) error {
	updated := live.DeepCopy()
	updated.Spec.Service = &apiregistrationv1.ServiceReference{
		Namespace: target.Namespace, Name: target.Name, Port: ptr.To(target.Port),
	}
	updated.Spec.CABundle, updated.Spec.InsecureSkipTLSVerify = nil, true
	for key, value := range s.serving.Labels() {
		metav1.SetMetaDataLabel(&updated.ObjectMeta, key, value)
	}
	if record != "" {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, v1alpha1.AnnotationPreviousOwner, record)
	}
	return r.Client.Update(ctx, updated, client.FieldOwner(v1alpha1.FieldOwner))
}
