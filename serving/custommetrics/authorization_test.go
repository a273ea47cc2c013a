// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
)

// rule is one of RBAC's, as far as it matters here.
type rule struct{ verb, namespace, resource, name string }

// rbac allows what one rule allows, and remembers what was asked.
type rbac struct {
	authorizer.Authorizer
	mu    sync.Mutex
	allow rule
	asked []rule
}

func (r *rbac) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.GetAPIGroup() != "custom.metrics.k8s.io" {
		return authorizer.DecisionNoOpinion, "another group", nil
	}
	resource := a.GetResource()
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	asked := rule{verb: a.GetVerb(), namespace: a.GetNamespace(), resource: resource, name: a.GetName()}
	r.asked = append(r.asked, asked)
	fits := func(has, wants string) bool { return wants == "" || has == wants }
	if fits(asked.verb, r.allow.verb) && fits(asked.namespace, r.allow.namespace) && fits(asked.resource, r.allow.resource) && fits(asked.name, r.allow.name) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rule", nil
}

func (r *rbac) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(r.Authorize(ctx, a))
}

// TestAuthorization: each metric is a right of its own, and so is to watch it, by
// whichever path.
func TestAuthorization(t *testing.T) {
	const (
		pod       = "/namespaces/shop/pods/web-1/hits"
		pods      = "/namespaces/shop/pods/*/hits"
		other     = "/namespaces/shop/pods/*/http.requests:rate5m"
		ingress   = "/namespaces/shop/ingresses.networking.k8s.io/front/hits"
		node      = "/nodes/node-a/load"
		namespace = "/namespaces/shop/metrics/queue-length"
		spaces    = "/namespaces/*/metrics/queue-length"
	)
	get, watch := func(path string) string { return root("v1beta2") + path },
		func(path string) string { return root("v1beta2") + "/watch" + path + "?timeoutSeconds=1" }
	queried := func(path string) string { return root("v1beta1") + path + "?watch=true&timeoutSeconds=1" }
	tests := map[string]struct {
		allow           rule
		allowed, denied []string
		asked           rule // by the first of allowed
	}{
		"to get one metric of pods": {
			allow:   rule{verb: "get", namespace: "shop", resource: "pods/hits"},
			allowed: []string{get(pod), get(pods)},
			denied:  []string{get(other), get(ingress), get(node), get(namespace), queried(pod), queried(pods), watch(pod), watch(pods)},
			asked:   rule{"get", "shop", "pods/hits", "web-1"},
		},
		"to watch one metric of pods": {
			allow:   rule{verb: "watch", namespace: "shop", resource: "pods/hits"},
			allowed: []string{queried(pods), queried(pod), watch(pod), watch(pods)},
			denied:  []string{get(pods), queried(other), watch(other), watch(node)},
			asked:   rule{"watch", "shop", "pods/hits", "*"},
		},
		"to watch, below /watch/": {
			allow:   rule{verb: "watch"},
			allowed: []string{watch(ingress), watch(node), watch(namespace), queried(spaces)},
			denied:  []string{get(ingress), get(node), get(namespace), get(spaces)},
			asked:   rule{"watch", "shop", "ingresses.networking.k8s.io/hits", "front"},
		},
		"one pod alone": {
			allow:   rule{verb: "get", resource: "pods/hits", name: "web-1"},
			allowed: []string{get(pod)},
			denied:  []string{get(pods), queried(pod)},
			asked:   rule{"get", "shop", "pods/hits", "web-1"},
		},
		"a namespace's own metric": {
			allow:   rule{verb: "get", namespace: "shop", resource: "metrics", name: "queue-length"},
			allowed: []string{get(namespace)},
			denied:  []string{get(spaces), get(pod), queried(namespace), watch(namespace)},
			asked:   rule{"get", "shop", "metrics", "queue-length"},
		},
		"a node's metric": {
			allow:   rule{verb: "get", resource: "nodes/load"},
			allowed: []string{get(node)},
			denied:  []string{get(pod), queried(node), watch(node)},
			asked:   rule{"get", "", "nodes/load", "node-a"},
		},
		"a metric of the resource of a group": {
			allow:   rule{resource: "ingresses.networking.k8s.io/hits"},
			allowed: []string{get(ingress), queried(ingress), watch(ingress)},
			denied:  []string{get(pod), watch(pod)},
			asked:   rule{"get", "shop", "ingresses.networking.k8s.io/hits", "front"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rbac{Authorizer: authorizerfactory.NewAlwaysDenyAuthorizer(), allow: tc.allow}
			server := serve(t, newWorld(), func(c *serverConfig, _ *Options) { c.Authorization.Authorizer = r })
			for i, path := range tc.allowed {
				if got := server.do(t, http.MethodGet, path, ""); got.code != http.StatusOK {
					t.Errorf("%s: %d, want it allowed: %s", path, got.code, got.body)
				}
				if i == 0 {
					if diff := cmp.Diff(tc.asked, r.asked[0], cmp.AllowUnexported(rule{})); diff != "" {
						t.Errorf("what is asked for %s (-want +got):\n%s", path, diff)
					}
				}
			}
			for _, path := range tc.denied {
				if got := server.do(t, http.MethodGet, path, ""); got.code != http.StatusForbidden {
					t.Errorf("%s: %d, want it denied: %s", path, got.code, got.body)
				}
			}
		})
	}
}

// TestUnresolvedWatch: an API server that calls a watch a get does not serve one.
func TestUnresolvedWatch(t *testing.T) {
	server := serve(t, newWorld(), func(c *serverConfig, _ *Options) { c.RequestInfoResolver = nil })
	if got := server.do(t, http.MethodGet, root("v1beta2")+"/namespaces/shop/pods/*/hits?watch=true&timeoutSeconds=1", ""); got.code != http.StatusInternalServerError {
		t.Errorf("%d %s", got.code, got.body)
	}
}
