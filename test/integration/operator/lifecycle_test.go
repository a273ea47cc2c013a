// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// discovered lists the current versions of metrics.k8s.io in aggregated discovery.
func discovered(t *testing.T, suite *controlPlane) []string {
	t.Helper()
	versions, err := discoveredAt(t.Context(), suite.config)
	if err != nil {
		t.Fatal(err)
	}
	return versions
}

// checkDiscovered compares the current versions with those wanted.
func checkDiscovered(t *testing.T, suite *controlPlane, when, want string) {
	t.Helper()
	if got := strings.Join(discovered(t, suite), " "); got != want {
		t.Errorf("discovery lists %q %s, want %q", got, when, want)
	}
}

// discoveredAt is discovered at one kube-apiserver.
func discoveredAt(ctx context.Context, config *rest.Config) ([]string, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	body, err := core.Discovery().RESTClient().Get().AbsPath("/apis").
		SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	var versions []string
	for _, group := range list.Items {
		for _, version := range group.Versions {
			if group.Name == "metrics.k8s.io" && version.Freshness != apidiscoveryv2.DiscoveryFreshnessStale {
				versions = append(versions, version.Version)
			}
		}
	}
	return versions, nil
}

// Kubelets that cannot be verified end in a condition with the remedies.
func TestUntrustedKubelets(t *testing.T) {
	suite := take(t)
	suite.pods.behave(t, behaviour{stale: true, report: &v1alpha1.KubeletReport{Nodes: 1, Failures: []v1alpha1.KubeletFailure{{
		Reason: v1alpha1.ScrapeCertificateUntrusted, Count: 1, Nodes: []string{"node-a"}, Message: "x509: unknown authority",
	}}}})
	createBackend(t, suite, newBackend("cluster"))
	waitCondition(t, suite, "cluster", v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, v1alpha1.ReasonKubeletCertificatesUntrusted)
	backend := waitCondition(t, suite, "cluster", v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonNoFreshSample)
	message := condition(backend, v1alpha1.ConditionSourcesHealthy).Message
	const begin, end = "kubectl patch", "}}}}'"
	_, patch, begins := strings.Cut(message, begin)
	patch, _, ends := strings.Cut(patch, end)
	if !begins || !ends {
		t.Fatalf("no command in the message: %s", message)
	}
	patch = begin + patch + end
	// The command in the message is one that works.
	if out, err := command(suite, "sh", "-c", strings.Replace(patch, "kubectl", suite.kubectl, 1)); err != nil {
		t.Fatalf("%s: %v: %s", patch, err, out)
	}
	if got := getBackend(t, suite, "cluster").Spec.ResourceMetrics.KubeletTLS.Mode; got != v1alpha1.KubeletTLSPinOnFirstUse {
		t.Errorf("mode %q after the command of the message", got)
	}
	suite.pods.behave(t, behaviour{})
	waitReady(t, suite, "cluster")
}
