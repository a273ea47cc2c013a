// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Backends lists the MetricsBackends by name. It returns none, and no error, if the CRD is not
// installed.
func (c *Cluster) Backends(ctx context.Context) ([]v1alpha1.MetricsBackend, error) {
	var list v1alpha1.MetricsBackendList
	err := c.list(ctx, &list, "MetricsBackends", "the ClusterRole metrics-backend-viewer allows it")
	// A list is never NotFound for another reason.
	return list.Items, client.IgnoreNotFound(err)
}

// APIServices lists the APIServices of all groups.
func (c *Cluster) APIServices(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	var list apiregistrationv1.APIServiceList
	err := c.list(ctx, &list, "APIServices", "you need the permission to list apiservices.apiregistration.k8s.io")
	return list.Items, err
}

// list lists objects. What users lack who may not is added to the error.
func (c *Cluster) list(ctx context.Context, list client.ObjectList, objects, lack string) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := c.Objects.List(ctx, list)
	switch {
	case IsDenied(err):
		return fmt.Errorf("list %s: %w (%s)", objects, err, lack)
	case err != nil:
		return fmt.Errorf("list %s: %w", objects, err)
	}
	return nil
}

// IsDenied reports whether the user has no permission, so that a retry is useless.
func IsDenied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// BackendNameError means that the user has to name a MetricsBackend, or another one.
type BackendNameError struct{ message string }

// Error implements error.
func (e *BackendNameError) Error() string { return e.message }

// CheckBackendName returns a *BackendNameError unless a backend has that name.
func CheckBackendName(name string, backends []v1alpha1.MetricsBackend) error {
	names := namesOf(backends)
	known := strings.Join(names, ", ")
	switch {
	case slices.Contains(names, name):
		return nil
	case name == "" && len(names) == 0:
		return &BackendNameError{"there is no MetricsBackend"}
	case name == "":
		return &BackendNameError{"name one of the MetricsBackends: " + known}
	case len(names) == 0:
		return &BackendNameError{fmt.Sprintf("MetricsBackend %q not found: there is none", name)}
	}
	return &BackendNameError{fmt.Sprintf("MetricsBackend %q not found; there are: %s", name, known)}
}

func namesOf(backends []v1alpha1.MetricsBackend) []string {
	var names []string
	for i := range backends {
		names = append(names, backends[i].Name)
	}
	return names
}

// Allocatable returns the allocatable resources of the selected nodes, by name.
func (c *Cluster) Allocatable(ctx context.Context, labelSelector, fieldSelector string) (map[string]corev1.ResourceList, error) {
	found := map[string]corev1.ResourceList{}
	var page corev1.NodeList
	err := c.Each(ctx, &page, func() {
		for i := range page.Items {
			found[page.Items[i].Name] = page.Items[i].Status.Allocatable
		}
	}, &client.ListOptions{Raw: &metav1.ListOptions{LabelSelector: labelSelector, FieldSelector: fieldSelector}})
	return found, err
}
