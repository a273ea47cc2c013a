// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// checkOwnership looks for objects that someone else owns before the first write,
// so that nothing half-applied stays behind. An object is ours by its label; a
// name that matches is not ownership.
func (r *Reconciler) checkOwnership(ctx context.Context, s *scope) error {
	for _, gv := range s.desired {
		if live := s.registered[apiServiceName(gv)]; live != nil && live.Labels[v1alpha1.LabelBackend] == s.backend.Name {
			continue
		}
		if err := r.checkAPIService(ctx, s, gv); err != nil {
			return err
		}
	}
	wanted := append(manifests.All(s.serving),
		manifests.CASecret(s.serving, nil, nil), manifests.TLSSecret(s.serving, nil, nil, nil))
	for _, object := range wanted {
		if err := r.applier.Check(ctx, s.backend.Name, object); err != nil {
			return err
		}
	}
	return nil
}

// checkAPIService refuses an APIService of someone else. (Adoption by policy has
// its place here.)
func (r *Reconciler) checkAPIService(ctx context.Context, s *scope, gv schema.GroupVersion) error {
	name := apiServiceName(gv)
	var service apiregistrationv1.APIService
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &service)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get APIService %s: %w", name, err)
	}
	switch holder := service.Labels[v1alpha1.LabelBackend]; {
	case holder == s.backend.Name:
		return nil
	case holder != "":
		return stall(v1alpha1.ReasonNotOwned,
			"APIService %s belongs to MetricsBackend %q: it is taken over once that MetricsBackend is deleted or no longer names the version",
			name, holder)
	case s.leadsToUs(&service):
		return stall(v1alpha1.ReasonNotOwned,
			"APIService %s leads to this backend's Service, but lacks the label that makes it ours: put it back (kubectl label apiservice %s %s=%s)",
			name, name, v1alpha1.LabelBackend, s.backend.Name)
	case service.Spec.Service == nil:
		return stall(v1alpha1.ReasonNotOwned,
			"APIService %s is served by kube-apiserver itself: take version %s out of spec.resourceMetrics.versions", name, gv.Version)
	}
	return stall(v1alpha1.ReasonNotOwned,
		"APIService %s belongs to someone else, it is served by Service %s/%s: remove that implementation and its registration "+
			"(kubectl delete apiservice %s), or take version %s out of spec.resourceMetrics.versions",
		name, service.Spec.Service.Namespace, service.Spec.Service.Name, name, gv.Version)
}

func apiServiceName(gv schema.GroupVersion) string { return manifests.APIServiceName(gv) }
