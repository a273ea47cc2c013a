// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// serviceRegistrations reads the APIServices of a backend that name a Service.
type serviceRegistrations struct {
	client  apiregistration.APIServicesGetter
	service types.NamespacedName
	// selector finds the APIServices that the operator made.
	selector labels.Selector
}

// backendSelector finds what belongs to a backend, or to any where none is named.
func backendSelector(backend string) (labels.Selector, error) {
	if backend == "" {
		return labels.Parse(v1alpha1.LabelBackend)
	}
	return labels.ValidatedSelectorFromSet(labels.Set{v1alpha1.LabelBackend: backend})
}

// Registered implements registrations.
func (r *serviceRegistrations) Registered(ctx context.Context) ([]schema.GroupVersion, error) {
	list, err := r.client.APIServices().List(ctx, metav1.ListOptions{LabelSelector: r.selector.String()})
	if err != nil {
		return nil, fmt.Errorf("list APIServices with label %s (this account needs list on apiservices.apiregistration.k8s.io): %w", r.selector, err)
	}
	var versions []schema.GroupVersion
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.Service == nil || spec.Service.Namespace != r.service.Namespace || spec.Service.Name != r.service.Name {
			continue
		}
		versions = append(versions, schema.GroupVersion{Group: spec.Group, Version: spec.Version})
	}
	return versions, nil
}

func sortVersions(versions []schema.GroupVersion) {
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
}
