// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
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

// A namespace that begins to end takes the versions with it at once, before its
// pods are gone, and the object can be deleted while the namespace still ends.
func TestNamespaceTerminating(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Namespace = otherNamespace }))
	waitReady(t, suite, "cluster")
	waitPointsTo(t, suite, "v1", otherNamespace+"/metrics-serving-cluster")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: otherNamespace}}
	if err := suite.admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, suite, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNamespaceTerminating)
	began := time.Now()
	outcome.Eventually(t, patience, "no version is registered", func(ctx context.Context) error {
		for _, version := range []string{"v1", "v1beta1"} {
			if _, err := getAPIService(ctx, suite, version); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %v", version, err)
			}
		}
		return nil
	})
	t.Logf("registrations gone %s after the condition", time.Since(began).Round(time.Millisecond))
	deleteBackend(t, suite, "cluster")
	finalizeNamespace(t, suite, otherNamespace)
}

// finalizeNamespace ends and remakes a namespace: no controller does it here.
func finalizeNamespace(t *testing.T, suite *controlPlane, name string) {
	t.Helper()
	for kinds, which := range map[string]string{
		"pods,deployments,replicasets,services,secrets,serviceaccounts,resourcequotas,poddisruptionbudgets,endpointslices": "--all",
		// Not the operator's own rights: its watches go on.
		"roles,rolebindings": "--selector=" + v1alpha1.LabelBackend,
	} {
		mustKubectl(t, suite, "delete", kinds, which, "-n", name, "--grace-period=0", "--force")
	}
	core, err := kubernetes.NewForConfig(suite.config)
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := core.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace.Spec.Finalizers = nil
	if _, err := core.CoreV1().Namespaces().Finalize(t.Context(), namespace, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, suite, "create", "namespace", name)
	mustKubectl(t, suite, "apply", "--server-side", "-n", name, "-k", "config/rbac/serving-namespace")
}
