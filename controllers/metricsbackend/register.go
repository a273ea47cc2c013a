// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// register brings desired versions into discovery once the rollout is finished
// and every ready pod, at least one, said that it serves them. An APIService
// that already leads to our Service is kept as it should be at any time: its
// caBundle must follow the certificates.
func (r *Reconciler) register(ctx context.Context, s *scope) error {
	if !s.observed {
		return nil
	}
	var pending []string
	var registered []string
	for _, gv := range s.desired {
		name := apiServiceName(gv)
		live := s.registered[name]
		ours := live != nil && s.leadsToUs(live)
		if s.apiServices[name].State == v1alpha1.APIServiceRetiring {
			pending = append(pending, name+" ("+s.apiServices[name].Message+")")
			continue
		}
		why := s.notYet(gv)
		if s.blocked || (!ours && why != "") {
			if ours {
				registered = append(registered, name)
				continue
			}
			if s.blocked {
				why = "waits until the backend is no longer held up"
			}
			s.setState(gv, v1alpha1.APIServicePending, why)
			pending = append(pending, name+" ("+why+")")
			continue
		}
		if err := r.applyAPIService(ctx, s, gv, live); err != nil {
			return err
		}
		registered = append(registered, name)
	}
	switch {
	case len(pending) > 0:
		reason := v1alpha1.ReasonDependencyNotReady
		if s.condition(v1alpha1.ConditionServingReady).Reason == v1alpha1.ReasonVersionNotServed {
			reason = v1alpha1.ReasonVersionNotServed
		}
		s.mark(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionFalse, reason,
			"not registered yet: "+strings.Join(pending, ", "))
	case len(registered) > 0:
		s.mark(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
			strings.Join(registered, ", ")+" registered for Service "+s.serving.Namespace+"/"+s.serving.Name())
	default:
		s.mark(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionFalse, v1alpha1.ReasonDependencyNotReady,
			"no version can be registered: see Ready for the reason")
	}
	return nil
}

// applyAPIService registers the version, or corrects its registration.
func (r *Reconciler) applyAPIService(ctx context.Context, s *scope, gv schema.GroupVersion, live *apiregistrationv1.APIService) error {
	if live == nil {
		// Someone may have registered it since the ownership was checked.
		if err := r.checkAPIService(ctx, s, gv); err != nil {
			return err
		}
		klog.FromContext(ctx).Info("Registering APIService", "apiService", apiServiceName(gv))
	}
	if _, err := r.applier.Apply(ctx, s.backend.Name, manifests.APIService(s.serving, gv, s.caBundle)); err != nil {
		return err
	}
	if live == nil {
		// Pods are asked again right after it: a mismatch retires the version.
		live = &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName(gv)}}
		s.registered[live.Name] = live
		s.again()
	}
	return nil
}

// leadsToUs tells whether an APIService leads to the Service of this backend.
func (s *scope) leadsToUs(service *apiregistrationv1.APIService) bool {
	target := service.Spec.Service
	return target != nil && target.Namespace == s.serving.Namespace && target.Name == s.serving.Name()
}

// notYet is why the version may not be registered yet, or empty.
func (s *scope) notYet(gv schema.GroupVersion) string {
	switch {
	case s.deployment == nil || !s.rolledOut:
		return "waits until the rollout is finished"
	case len(s.caBundle) == 0:
		return "waits for the certificates"
	case s.servedByAll(gv) && s.stillEnding(gv) != "":
		return "waits for the end of " + s.stillEnding(gv)
	case s.servedByAll(gv):
		return ""
	case len(s.lacking(gv)) > 0:
		return "not served by " + strings.Join(s.lacking(gv), ", ")
	case slices.ContainsFunc(s.readyPods(), func(p pod) bool { return p.err != nil }):
		return "waits until every ready pod can be asked"
	case len(s.readyPods()) == 0:
		return "waits for a ready pod"
	}
	return fmt.Sprintf("waits for the answers of %d pods", len(s.readyPods()))
}
