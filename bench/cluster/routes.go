// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Namespace and name of the Service through which serving finds another implementation on this machine.
const (
	OtherNamespace = servingNamespace
	OtherService   = "other-implementation"
)

// AllowRoutes creates what serving needs to ask another implementation, as the operator does, unless it is there. It
// returns serving's flags for that.
func (c *ControlPlane) AllowRoutes(ctx context.Context) (flags []string, err error) {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	created := func(what string, err error) error {
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		return fmt.Errorf("create %s for routes: %w", what, err)
	}
	const account = servingAccount + v1alpha1.MetricsAPIAccountSuffix
	_, err = client.CoreV1().ServiceAccounts(OtherNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err := created("a ServiceAccount", err); err != nil {
		return nil, err
	}
	_, err = client.CoreV1().Services(OtherNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: OtherService},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err := created("a Service", err); err != nil {
		return nil, err
	}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		servingAccount: {
			{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}},
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
			// Before the first readiness it asks what is registered, and its peers.
			{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"list"}},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch"}},
		},
		account: {{APIGroups: []string{"custom.metrics.k8s.io", "external.metrics.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}},
	} {
		role := name + "-routes"
		_, err = client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}, metav1.CreateOptions{})
		if err := created("a ClusterRole", err); err != nil {
			return nil, err
		}
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: OtherNamespace, Name: name}},
		}, metav1.CreateOptions{})
		if err := created("a ClusterRoleBinding", err); err != nil {
			return nil, err
		}
	}
	return []string{"--service-namespace=" + OtherNamespace, "--service-name=" + servingAccount}, nil
}
