// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// A backend that is ready, under load, and with everything else of a real cluster at
// work around it, is written to by nobody: neither itself nor any object of it, for
// longer than it takes the operator to look again.
func TestSteadyState(t *testing.T) {
	const long = 65 * time.Second
	requireBackend(t)
	startTraffic(t, trafficPaths...)
	children := []schema.GroupVersionResource{
		apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"),
		appsv1.SchemeGroupVersion.WithResource("deployments"), appsv1.SchemeGroupVersion.WithResource("replicasets"),
		corev1.SchemeGroupVersion.WithResource("services"), corev1.SchemeGroupVersion.WithResource("secrets"),
		corev1.SchemeGroupVersion.WithResource("serviceaccounts"), corev1.SchemeGroupVersion.WithResource("configmaps"),
		corev1.SchemeGroupVersion.WithResource("pods"), discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
		rbacv1.SchemeGroupVersion.WithResource("roles"), rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
		rbacv1.SchemeGroupVersion.WithResource("clusterroles"), rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
	}
	recorded(t)
	quiet := func(d time.Duration) []event {
		events := watchObjects(t, children, v1alpha1.LabelBackend+"="+backendName)
		itself := watchObjects(t, []schema.GroupVersionResource{v1alpha1.GroupVersion.WithResource("metricsbackends")}, "")
		select {
		case <-time.After(d):
		case <-t.Context().Done():
		}
		return append(events(), itself()...)
	}
	eventually(t, 2*time.Minute, "nothing is written for some seconds", func(context.Context) error {
		if written := quiet(5 * time.Second); len(written) > 0 {
			return fmt.Errorf("%d writes, the last: %+v", len(written), written[len(written)-1])
		}
		return nil
	})
	for _, e := range quiet(long) {
		t.Errorf("written in a steady state: %s %s, at revision %d, last by %s", e.kind, e.name, e.revision, e.manager)
	}
}

// recorded waits until this test is among the clients in the status. That is written
// once a day for each client, when the operator looks, for which it gets a cause.
func recorded(t *testing.T) {
	t.Helper()
	const annotation = "e2e.metricsbackend.io/look"
	deployment := "deployment/metrics-serving-" + backendName
	t.Cleanup(func() { _, _ = run("kubectl", "annotate", "-n", namespace, deployment, annotation+"-") })
	agent, _, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	eventually(t, 2*time.Minute, "this test is among the clients in the status", func(context.Context) error {
		seen := 0
		for _, consumer := range getBackend(t).Status.Consumers {
			if consumer.UserAgent == agent && consumer.LastSeen == time.Now().UTC().Format(time.DateOnly) {
				seen++
			}
		}
		if seen == len(both) {
			return nil
		}
		out, err := run("kubectl", "annotate", "-n", namespace, deployment, "--overwrite", annotation+"="+strconv.FormatInt(time.Now().UnixNano(), 10))
		if err != nil {
			return fmt.Errorf("annotate %s: %w: %s", deployment, err, out)
		}
		return fmt.Errorf("%d of %d versions", seen, len(both))
	})
}
