// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/certificates"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// certificates determines the serving certificate and the authorities that clients
// should trust.
func (r *Reconciler) certificates(ctx context.Context, s *reconcileState) error {
	if s.namespace.unmanaged {
		s.setCondition(v1alpha1.ConditionCertificatesValid, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"Secrets of a namespace that the operator does not manage are not read")
		return nil
	}
	services := s.servingAPIServices()
	if !s.deploys() && len(services) == 0 {
		return nil
	}
	for i, service := range services {
		// The previous owner's authority beside ours is not one of our pods'.
		services[i] = service.DeepCopy()
		services[i].Spec.CABundle = lifecycle.OurAuthority(service.Spec.CABundle)
	}
	var err error
	s.certificate, err = r.certificateReconciler.Prepare(ctx, certificates.Input{
		Serving: s.serving, Deploys: s.deploys(), RotationRequest: s.backend.Annotations[v1alpha1.AnnotationRotate], Blocked: s.outcome.blocked, NamespaceGone: s.namespace.gone, Now: s.now,
		APIServices: services, Contested: s.isContested, Streaks: s.history.certificates,
	})
	s.reportCertificate()
	return err
}

// rotate replaces the certificate if it has to, and removes authorities that no pod needs
// any more. register writes the APIServices.
func (r *Reconciler) rotate(ctx context.Context, s *reconcileState) error {
	if s.namespace.gone || !s.deploys() {
		return nil
	}
	unusable, err := s.certificate.Rotate(ctx, s.podCertificates(), s.outcome.blocked)
	s.reportCertificate()
	if unusable != nil {
		s.setStalled(&stalledError{unusable.Reason, unusable.Message})
	}
	return err
}

func (s *reconcileState) reportCertificate() {
	if c := s.certificate.Condition; c.Status != "" {
		s.setCondition(v1alpha1.ConditionCertificatesValid, c.Status, c.Reason, c.Message)
	}
	if s.certificate.RequeueAfter > 0 {
		s.requeueWithin(s.certificate.RequeueAfter)
	}
}

// podCertificates returns all pods that serve, or may have mounted a certificate.
func (s *reconcileState) podCertificates() []certificates.Pod {
	var served []certificates.Pod
	for _, p := range s.runningPods() {
		served = append(served, certificates.Pod{
			Name: p.Name, Chain: p.chain(),
			Overdue: p.DeletionTimestamp != nil && !s.now.Before(p.DeletionTimestamp.Time),
		})
	}
	for _, p := range s.rollout.pods {
		if p.Status.Phase == corev1.PodPending && p.Spec.NodeName != "" {
			served = append(served, certificates.Pod{Name: p.Name, Chain: p.chain()})
		}
	}
	return served
}

// servingAPIServices returns the APIServices that point to our pods, sorted by name.
func (s *reconcileState) servingAPIServices() []*apiregistrationv1.APIService {
	var services []*apiregistrationv1.APIService
	for _, name := range s.registeredNames() {
		if s.identity().PointsToPods(s.registered[name]) {
			services = append(services, s.registered[name])
		}
	}
	return services
}
