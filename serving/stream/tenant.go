// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"cmp"
	"container/heap"
	"container/list"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// tenantKey identifies a tenant: the namespace of ServiceAccounts, or another user by name.
type tenantKey struct {
	namespace, user string
	// system says that it may use the reserve.
	system bool
}

func (k tenantKey) String() string {
	if k.namespace != "" {
		return fmt.Sprintf("ServiceAccounts of namespace %q", k.namespace)
	}
	return fmt.Sprintf("user %q", k.user)
}

// tenantOf returns the tenant of a user. Whoever may create ServiceAccounts in a namespace can
// have any number of user names, but is one tenant.
//
// The reserve is for components of the control plane (system:<name>), for ServiceAccounts of
// kube-system and for the group system:masters. Of other names below system:, as of nodes and
// bootstrap tokens, there are many, and system:anonymous can be anybody.
func tenantOf(u user.Info) tenantKey {
	name := u.GetName()
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		return tenantKey{namespace: namespace, system: namespace == metav1.NamespaceSystem}
	}
	component, ok := strings.CutPrefix(name, "system:")
	ok = ok && name != user.Anonymous && !strings.Contains(component, ":")
	return tenantKey{user: name, system: ok || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)}
}

// tenant has the watches of one tenant.
type tenant struct {
	tenantKey
	// open are all that are counted.
	open int
	// opened are those of them that can be ended, the newest last.
	opened list.List
	// index is that in the heap.
	index int
}

// pool has the tenants that may use the reserve, or those that may not.
type pool struct {
	open    int
	tenants tenantHeap
}

// count adds n to the watches of a tenant. Tenants without watches are not in the heap.
func (p *pool) count(t *tenant, n int) {
	before := t.open
	p.open += n
	t.open += n
	switch {
	case before == 0:
		heap.Push(&p.tenants, t)
	case t.open == 0:
		heap.Remove(&p.tenants, t.index)
	default:
		heap.Fix(&p.tenants, t.index)
	}
}

// largest returns the tenant with most watches; nil if there is none.
func (p *pool) largest() *tenant {
	if len(p.tenants) == 0 {
		return nil
	}
	return p.tenants[0]
}

// tenantHeap has the tenant with most watches first. Of equal ones it is always the same.
type tenantHeap []*tenant

var _ heap.Interface = &tenantHeap{}

func (h tenantHeap) Len() int { return len(h) }

func (h tenantHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(b.open, a.open), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.user, b.user)) < 0
}

func (h tenantHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is part of heap.Interface.
func (h *tenantHeap) Push(x any) {
	t := x.(*tenant)
	t.index = len(*h)
	*h = append(*h, t)
}

// Pop is part of heap.Interface.
func (h *tenantHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return t
}
