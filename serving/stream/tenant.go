// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// tenant is the namespace of ServiceAccounts, or another user by name.
type tenant struct {
	namespace, user string
	// system says that it may use the reserve.
	system bool
}

func (t tenant) String() string {
	if t.namespace != "" {
		return fmt.Sprintf("ServiceAccounts of namespace %q", t.namespace)
	}
	return fmt.Sprintf("user %q", t.user)
}

// tenantOf returns the tenant of a user. Whoever may create ServiceAccounts in a namespace can
// have any number of user names, but is one tenant.
//
// The reserve is for components of the control plane (system:<name>), for ServiceAccounts of
// kube-system and for the group system:masters. Of other names below system:, as of nodes and
// bootstrap tokens, there are many, and system:anonymous can be anybody.
func tenantOf(u user.Info) tenant {
	name := u.GetName()
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		return tenant{namespace: namespace, system: namespace == metav1.NamespaceSystem}
	}
	component, ok := strings.CutPrefix(name, "system:")
	ok = ok && name != user.Anonymous && !strings.Contains(component, ":")
	return tenant{user: name, system: ok || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)}
}
