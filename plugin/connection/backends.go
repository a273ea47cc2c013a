// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Backends lists the MetricsBackends in order of their names; none when the cluster
// does not know the kind, which is no error.
func (c *Cluster) Backends(ctx context.Context) ([]v1alpha1.MetricsBackend, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var list v1alpha1.MetricsBackendList
	if err := c.Objects.List(ctx, &list); isUnknownKind(err) {
		return nil, nil
	} else if err != nil {
		return nil, hint(fmt.Errorf("list MetricsBackends: %w", err), "the ClusterRole metrics-backend-viewer allows it")
	}
	return list.Items, nil
}

// APIServices lists those of all groups.
func (c *Cluster) APIServices(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var list apiregistrationv1.APIServiceList
	if err := c.Objects.List(ctx, &list); err != nil {
		return nil, hint(fmt.Errorf("list APIServices: %w", err), "you need the permission to list apiservices.apiregistration.k8s.io")
	}
	return list.Items, nil
}

// Refused tells whether the user lacks a permission: to ask again changes nothing.
func Refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// hint adds what a user who may not read something lacks.
func hint(err error, lack string) error {
	if Refused(err) {
		return fmt.Errorf("%w (%s)", err, lack)
	}
	return err
}

// MisnamedError tells that the user has to name a MetricsBackend, or another one.
type MisnamedError struct{ message string }

// Error implements error.
func (e *MisnamedError) Error() string { return e.message }

// Named returns a *MisnamedError unless a backend has that name.
func Named(name string, backends []v1alpha1.MetricsBackend) error {
	var names []string
	for i := range backends {
		if backends[i].Name == name {
			return nil
		}
		names = append(names, backends[i].Name)
	}
	known := strings.Join(names, ", ")
	switch {
	case name == "" && len(names) == 0:
		return &MisnamedError{"there is no MetricsBackend"}
	case name == "":
		return &MisnamedError{"name one of the MetricsBackends: " + known}
	case len(names) == 0:
		return &MisnamedError{fmt.Sprintf("MetricsBackend %q not found: there is none", name)}
	}
	return &MisnamedError{fmt.Sprintf("MetricsBackend %q not found; there are: %s", name, known)}
}

// BackendNames are for the completion of a command line; errors mean none.
func (c *Cluster) BackendNames(ctx context.Context) []string {
	backends, err := c.Backends(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for i := range backends {
		names = append(names, backends[i].Name)
	}
	return names
}
