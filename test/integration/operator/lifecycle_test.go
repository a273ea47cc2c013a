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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// An empty resourceMetrics ends with both versions available, through the real
// aggregator.
func TestBecomesReady(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	backend := waitReady(t, "cluster")
	if got, want := backend.Status.RegisteredVersions, "v1, v1beta1"; got != want {
		t.Errorf("registeredVersions = %q, want %q", got, want)
	}
	if got, want := backend.Status.Serving.Summary, "2/2"; got != want {
		t.Errorf("serving.summary = %q, want %q", got, want)
	}
	if got := strings.Join(discovered(t), " "); got != "v1 v1beta1" {
		t.Errorf("discovery lists %q, want v1 first", got)
	}
}

// The same in a namespace that is not the operator's own.
func TestServesFromAnotherNamespace(t *testing.T) {
	createBackend(t, newBackend("elsewhere", func(spec *v1alpha1.MetricsBackendSpec) { spec.Namespace = otherNamespace }))
	waitReady(t, "elsewhere")
	service, err := getAPIService(t.Context(), "v1")
	if err != nil || service.Spec.Service.Namespace != otherNamespace {
		t.Errorf("APIService v1 leads to %+v (%v)", service.Spec.Service, err)
	}
}

// discovered lists the current versions of metrics.k8s.io in aggregated discovery.
func discovered(t *testing.T) []string {
	t.Helper()
	versions, err := discoveredAt(t.Context(), suite.config)
	if err != nil {
		t.Fatal(err)
	}
	return versions
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

// A version leaves discovery when the spec drops it, and comes back; the other
// one answers throughout.
func TestVersionDroppedAndAdded(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	waitReady(t, "cluster")
	load := startRequests(t, "v1beta1")
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{v1alpha1.ResourceMetricsV1beta1}
	})
	backend := waitReady(t, "cluster")
	if _, err := getAPIService(t.Context(), "v1"); !apierrors.IsNotFound(err) {
		t.Errorf("APIService v1: %v, want that it is gone", err)
	}
	if got := strings.Join(discovered(t), " "); got != "v1beta1" {
		t.Errorf("discovery lists %q once the backend says that it is done", got)
	}
	if backend.Status.RegisteredVersions != "v1beta1" {
		t.Errorf("registeredVersions = %q", backend.Status.RegisteredVersions)
	}
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.Versions = nil })
	waitReady(t, "cluster")
	load.stop(t)
}

// An image without v1 takes v1 out of discovery before its pods take traffic; the
// next image brings it back. v1beta1 answers throughout.
func TestImageRolledBackAndForth(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	waitReady(t, "cluster")
	guard := startGuard(t)
	load := startRequests(t, "v1beta1")
	for range 2 {
		changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageV1beta1 })
		backend := waitCondition(t, "cluster", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed)
		if got := strings.Join(discovered(t), " "); got != "v1beta1" {
			t.Errorf("discovery lists %q with an image that serves v1beta1 only", got)
		}
		if c := condition(backend, v1alpha1.ConditionServingReady); !strings.Contains(c.Message, imageV1beta1) || !strings.Contains(c.Message, "v1.metrics.k8s.io is not served") {
			t.Errorf("ServingReady does not name the version and the image: %s", c.Message)
		}
		changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageBoth })
		waitReady(t, "cluster")
		if got := strings.Join(discovered(t), " "); got != "v1 v1beta1" {
			t.Errorf("discovery lists %q after the upgrade", got)
		}
	}
	load.stop(t)
	guard.stop(t)
}

// A rollout that cannot start is told with its cause, and nothing that works is
// touched.
func TestImageThatDoesNotExist(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	waitReady(t, "cluster")
	load := startRequests(t, "v1", "v1beta1")
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageMissing })
	backend := waitCondition(t, "cluster", v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed)
	if c := condition(backend, v1alpha1.ConditionServingReady); !strings.Contains(c.Message, "image "+imageMissing+" cannot be pulled") {
		t.Errorf("message %q", c.Message)
	}
	if c := condition(backend, v1alpha1.ConditionAvailable); c.Status != metav1.ConditionTrue {
		t.Errorf("Available is %+v while the former pods serve", c)
	}
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageBoth })
	waitReady(t, "cluster")
	load.stop(t)
}

// What the spec turns off is removed.
func TestOptionalChildren(t *testing.T) {
	createBackend(t, newBackend("cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.NetworkPolicy = v1alpha1.NetworkPolicyRestricted
	}))
	waitReady(t, "cluster")
	count := func() string {
		out, err := kubectl("get", "networkpolicies,poddisruptionbudgets", "-n", systemNamespace, "-l", v1alpha1.LabelBackend, "-o", "name")
		if err != nil {
			t.Fatal(out)
		}
		return strings.Join(strings.Fields(out), " ")
	}
	if got, want := count(), "networkpolicy.networking.k8s.io/metrics-serving-cluster poddisruptionbudget.policy/metrics-serving-cluster"; got != want {
		t.Errorf("with two replicas and a policy: %s", got)
	}
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.NetworkPolicy, spec.Serving.Replicas = v1alpha1.NetworkPolicyNone, ptr.To[int32](1)
	})
	waitReady(t, "cluster")
	if got := count(); got != "" {
		t.Errorf("with one replica and no policy: %s", got)
	}
}

// An APIService of someone else is left alone, and its owner named; once it is
// gone the backend goes on by itself.
func TestForeignAPIService(t *testing.T) {
	manifest := `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{"group":"metrics.k8s.io",
		"version":"v1beta1","insecureSkipTLSVerify":true,"groupPriorityMinimum":100,"versionPriority":100,"service":{"name":"metrics-server","namespace":"kube-system"}}}`
	var foreign map[string]any
	if err := json.Unmarshal([]byte(manifest), &foreign); err != nil {
		t.Fatal(err)
	}
	object := unstructuredOf(foreign)
	if err := suite.admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	createBackend(t, newBackend("cluster"))
	backend := waitCondition(t, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNotOwned)
	for _, part := range []string{"kube-system/metrics-server", "kubectl delete apiservice v1beta1.metrics.k8s.io"} {
		if c := condition(backend, v1alpha1.ConditionStalled); !strings.Contains(c.Message, part) {
			t.Errorf("message %q, want %q in it", c.Message, part)
		}
	}
	if _, err := getAPIService(t.Context(), "v1"); !apierrors.IsNotFound(err) {
		t.Errorf("v1 was registered while the backend is stalled: %v", err)
	}
	if err := suite.admin.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	waitReady(t, "cluster")
}

// Kubelets that cannot be verified end in a condition with the remedies.
func TestUntrustedKubelets(t *testing.T) {
	suite.pods.setStale(true)
	suite.pods.setReport(&v1alpha1.KubeletReport{Nodes: 1, Failures: []v1alpha1.KubeletFailure{{
		Reason: v1alpha1.ScrapeCertificateUntrusted, Count: 1, Nodes: []string{"node-a"}, Message: "x509: unknown authority",
	}}})
	t.Cleanup(func() { suite.pods.setStale(false); suite.pods.setReport(nil) })
	createBackend(t, newBackend("cluster"))
	waitCondition(t, "cluster", v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, v1alpha1.ReasonKubeletCertificatesUntrusted)
	backend := waitCondition(t, "cluster", v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonNoFreshSample)
	message := condition(backend, v1alpha1.ConditionSourcesHealthy).Message
	const begin, end = "kubectl patch", "}}}}'"
	_, command, begins := strings.Cut(message, begin)
	command, _, ends := strings.Cut(command, end)
	if !begins || !ends {
		t.Fatalf("no command in the message: %s", message)
	}
	command = begin + command + end
	// The command in the message is one that works.
	if out, err := shell(strings.Replace(command, "kubectl", suite.kubectl, 1)); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	if got := getBackend(t, "cluster").Spec.ResourceMetrics.KubeletTLS.Mode; got != v1alpha1.KubeletTLSPinOnFirstUse {
		t.Errorf("mode %q after the command of the message", got)
	}
	suite.pods.setStale(false)
	suite.pods.setReport(nil)
	waitReady(t, "cluster")
}

// The certificates are deleted: requests go on, since the former authority stays
// trusted until pods have the new certificate.
func TestCertificatesDeleted(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	waitReady(t, "cluster")
	load := startRequests(t, "v1", "v1beta1")
	before := secretOfServing(t)
	// What is waited for lasts until pods have the new certificate.
	suite.pods.setSecretDelay(t, 2*time.Second)
	if out, err := kubectl("delete", "secret", "-n", systemNamespace, "-l", v1alpha1.LabelBackend+"=cluster"); err != nil {
		t.Fatal(out)
	}
	eventually(t, patience, "new certificates", func(context.Context) error {
		service, err := getAPIService(t.Context(), "v1")
		if err != nil {
			return err
		}
		after, err := findSecretOfServing(t.Context())
		switch {
		case err != nil:
			return err
		case string(after.Data["tls.crt"]) == string(before.Data["tls.crt"]):
			return fmt.Errorf("still the former certificate")
		case string(service.Spec.CABundle) != string(after.Data["ca.crt"]):
			return fmt.Errorf("the APIService has another bundle")
		case !strings.HasSuffix(string(after.Data["ca.crt"]), string(before.Data["ca.crt"])):
			return fmt.Errorf("the former authority is not trusted any more")
		}
		return nil
	})
	waitReady(t, "cluster")
	load.stop(t)
}

func secretOfServing(t *testing.T) *corev1.Secret {
	t.Helper()
	secret, err := findSecretOfServing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func findSecretOfServing(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := suite.admin.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-cluster-tls"}, secret)
	return secret, err
}

// A namespace that begins to end takes the versions with it at once, before its
// pods are gone, and the object can be deleted while the namespace still ends.
func TestNamespaceTerminating(t *testing.T) {
	createBackend(t, newBackend("cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Namespace = otherNamespace }))
	waitReady(t, "cluster")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: otherNamespace}}
	if err := suite.admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNamespaceTerminating)
	began := time.Now()
	eventually(t, patience, "no version is registered", func(ctx context.Context) error {
		for _, version := range []string{"v1", "v1beta1"} {
			if _, err := getAPIService(ctx, version); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s: %v", version, err)
			}
		}
		return nil
	})
	t.Logf("registrations gone %s after the condition", time.Since(began).Round(time.Millisecond))
	deleteBackend(t, "cluster")
	finalizeNamespace(t, otherNamespace)
}

// finalizeNamespace ends and remakes a namespace: no controller does it here.
func finalizeNamespace(t *testing.T, name string) {
	t.Helper()
	for _, kind := range []string{"pods", "deployments", "replicasets", "services", "secrets", "serviceaccounts", "roles", "rolebindings", "poddisruptionbudgets", "endpointslices"} {
		which := "--all"
		if kind == "roles" || kind == "rolebindings" {
			// Not the operator's own rights: its watches go on.
			which = "--selector=" + v1alpha1.LabelBackend
		}
		if out, err := kubectl("delete", kind, which, "-n", name, "--grace-period=0", "--force"); err != nil {
			t.Fatalf("empty namespace %s: %s", name, out)
		}
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
	for _, args := range [][]string{
		{"create", "namespace", name}, {"apply", "--server-side", "-n", name, "-k", "config/rbac/serving-namespace"},
	} {
		if out, err := kubectl(args...); err != nil {
			t.Fatalf("kubectl %v: %s", args, out)
		}
	}
}
