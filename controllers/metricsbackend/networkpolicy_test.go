// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The policy allows connections to the ports of this cluster's kube-apiservers. While
// they are unknown there is no policy.
func TestNetworkPolicyKnowsKubeAPIServer(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.NetworkPolicy = v1alpha1.NetworkPolicyRestricted
	}))
	fc.unreachable = true
	var ports []string
	r := fc.reconciler(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			policy, ok := o.(*networkingv1ac.NetworkPolicyApplyConfiguration)
			if !ok {
				return c.Apply(ctx, o, opts...)
			}
			for _, port := range policy.Spec.Egress[0].Ports {
				ports = append(ports, port.Port.String())
			}
			return nil
		},
	})
	mustReconcile(t, r)
	if _, err := reconcileOnce(t, r); err == nil || !strings.Contains(err.Error(), "read the ports of kube-apiservers for the NetworkPolicy") {
		t.Errorf("got %v", err)
	}
	if len(ports) > 0 || len(fc.pods()) > 0 {
		t.Errorf("applied a policy with ports %v", ports)
	}
	fc.unreachable = false
	mustReconcile(t, r)
	if !slices.Contains(ports, "16443") {
		t.Errorf("port 16443 is not among %v", ports)
	}
}
