// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	kedaService = "keda/keda-metrics-apiserver"
	kedaDemo    = "keda-demo"
	kedaPage    = "adopt-keda.md"
	// kedaFlag has KEDA's operator leave caBundles alone, before 2.20.0.
	kedaFlag = "FLAG=--enable-cert-rotation=false"
	// kedaAuthority is the ConfigMap with KEDA's CA.
	kedaAuthority = "keda-ca"
	// kedaVersion has the APIService that KEDA and our pods both serve.
	kedaVersion = "v1beta1.external"
	// kedaMetric is that of the ScaledObject: how many pods of the Deployment watched there are.
	kedaMetric = "/apis/external.metrics.k8s.io/v1beta1/namespaces/keda-demo/s0-workload-keda-demo?labelSelector=scaledobject.keda.sh%2Fname%3Dtarget"
)

// KEDA's operator and adapter, a metrics-server that an add-on manager keeps, and a MetricsBackend with all three groups and
// its defaults: each goes on, and custom metrics, which nobody else has, are ours. While KEDA's operator writes a caBundle of
// its own, its API is not taken over. Without that it is taken over, with a route that leads to KEDA what no rule defines, and
// given back, while helm-controller, which applied it, applies it once more; and once more by its runbook. KEDA scales all the
// time, and beside it an HPA by an external metric of ours. Nobody's request fails.
func TestKEDA(t *testing.T) {
	measureNamespaces(t)
	deployMetricsServer(t)
	addons := startAddOnManager(t)
	startKEDA(t)
	c := startClients(t)
	paths := []string{"/apis/external.metrics.k8s.io/v1beta1", kedaMetric}
	values := startTraffic(t, paths...)
	t.Cleanup(func() { _, _ = run("kubectl", "delete", "metricsbackends", "--all", "--timeout=180s") })

	t.Log("beside both, with defaults")
	startShop(t)
	createBesideKEDA(t)
	refused := waitCondition(t, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNotOwned)
	t.Logf("Stalled: %s", refused.Message)
	outcome.Eventually(t, 3*time.Minute, "the HPA scales by a custom metric", func(ctx context.Context) error {
		return scaledUp(ctx, types.NamespacedName{Namespace: shop, Name: "cart"}, autoscalingv2.PodsMetricSourceType)
	})
	for _, version := range []string{"v1beta1", kedaVersion} {
		entry := waitVersion(t, version, v1alpha1.APIServicePending)
		t.Logf("%s: %s", entry.Name, entry.Message)
	}
	kedaScales(t, 3)
	t.Log(kubectl(t, "top", "nodes"))

	t.Log("Always, while KEDA's operator writes the caBundle")
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		// The add-on manager keeps metrics.k8s.io: it is left to metrics-server, as docs/concepts/lifecycle.md says.
		spec.ResourceMetrics = nil
		spec.ExternalMetrics.Adoption = v1alpha1.AdoptionAlways
	})
	contested := waitCondition(t, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonContested)
	t.Logf("Stalled: %s", contested.Message)
	for _, words := range []string{`field manager "keda"`, "--enable-cert-rotation=false"} {
		if !strings.Contains(contested.Message, words) {
			t.Errorf("the message does not say %q", words)
		}
	}
	waitPointsTo(t, kedaVersion, kedaService)
	kedaScales(t, 2)
	// KEDA's adapter fails while its operator restarts.
	values.finish(t, "of discovery and of KEDA's metric, beside KEDA")

	t.Log("Always, without that")
	runbookPart(t, kedaPage, "## Before", "## 2.", "KEDA=keda", kedaFlag)
	kedaScales(t, 3)
	values = startTraffic(t, paths...)
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics.Adoption = v1alpha1.AdoptionRefuse })
	waitCondition(t, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNotOwned)
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics.Adoption = v1alpha1.AdoptionAlways })
	waitReady(t)
	waitPointsTo(t, kedaVersion, ourService)
	for _, where := range []string{
		waitCondition(t, v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionTrue, "").Message,
		waitVersion(t, kedaVersion, v1alpha1.APIServiceAvailable).AppliedBy,
	} {
		t.Logf("after the takeover: %s", where)
		if !strings.Contains(where, "HelmRelease flux-system/keda") {
			t.Error("it does not name the HelmRelease")
		}
	}

	kedaScales(t, 2)
	outcome.Eventually(t, 3*time.Minute, "an HPA scales by an external metric of ours beside it", func(ctx context.Context) error {
		return scaledUp(ctx, types.NamespacedName{Namespace: shop, Name: "mailer"}, autoscalingv2.ExternalMetricSourceType)
	})
	if listed := kubectl(t, "get", "--raw", "/apis/external.metrics.k8s.io/v1beta1"); !strings.Contains(listed, `"externalmetrics"`) || !strings.Contains(listed, `queue_length"`) {
		t.Errorf("discovery is %s", listed)
	}

	t.Log("helm-controller applies it again")
	correctDrift := func(mode string) {
		kubectl(t, "-n", fluxNamespace, "patch", "helmrelease", "keda", "--type=merge", "-p",
			fmt.Sprintf(`{"spec":{"driftDetection":{"mode":%q},"values":{"additionalLabels":{"drift":%q}}}}`, mode, mode))
	}
	correctDrift("enabled")
	contested = waitCondition(t, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonContested)
	t.Logf("Stalled: %s", contested.Message)
	for _, words := range []string{`field manager "helm-controller"`, "HelmRelease flux-system/keda"} {
		if !strings.Contains(contested.Message, words) {
			t.Errorf("the message does not say %q", words)
		}
	}
	waitPointsTo(t, kedaVersion, kedaService)
	correctDrift("disabled")
	kubectl(t, "-n", fluxNamespace, "wait", "--for=jsonpath={.status.history[0].version}=3", "--timeout=60s", "helmrelease/keda")
	// A change of the spec makes the operator try again.
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics.AdoptDespiteLostMetrics = true })
	waitReady(t)
	waitPointsTo(t, kedaVersion, ourService)

	t.Log("given back, once no autoscaler reads what KEDA does not serve")
	kubectl(t, "-n", shop, "delete", "hpa", "mailer")
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics = nil })
	back := waitPointsTo(t, kedaVersion, kedaService)
	if back.Labels[v1alpha1.LabelBackend] != "" || back.Annotations[v1alpha1.AnnotationPreviousOwner] != "" {
		t.Errorf("handed back: %+v", back.ObjectMeta)
	}
	waitReady(t)
	kedaScales(t, 3)

	kubectl(t, "delete", "metricsbackend", backendName, "--timeout=180s")
	kubectl(t, "-n", namespace, "delete", "configmap", kedaAuthority)
	t.Log("by the runbook, there and back")
	installPlugin(t)
	variables := []string{"INSTALL=" + renderManifest(t, "dev"), "KEDA=keda", kedaFlag, "PROMETHEUS=" + prometheusURL(t, "prometheus"), "NAMESPACE=" + shop, "QUERY=sum(mail_queue_length)"}
	runbookPart(t, kedaPage, "## 2.", "## 4.", variables...)
	waitPointsTo(t, kedaVersion, ourService)
	kedaScales(t, 2)
	runbookPart(t, kedaPage, "## 4.", "## 5.", variables...)
	waitPointsTo(t, kedaVersion, kedaService)
	kedaScales(t, 3)
	values.finish(t, "of discovery and of KEDA's metric, taken over and given back, twice")
	finishClients(t, c)
	addons.requireIdle(t)
	runbookPart(t, kedaPage, "## 5.", "", variables...)
}

// createBesideKEDA creates a MetricsBackend with all groups and defaults. Its rules make a custom and an external metric, and
// a route leads to KEDA whatever else is asked for.
func createBesideKEDA(t *testing.T) {
	t.Helper()
	certificates, err := suite.core.CoreV1().Secrets("keda").Get(t.Context(), "kedaorg-certs", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: kedaAuthority, Namespace: namespace}, Data: map[string]string{"ca.crt": string(certificates.Data["ca.crt"])}}
	if err := suite.client.Create(t.Context(), ca); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = run("kubectl", "-n", namespace, "delete", "--ignore-not-found", "configmap", ca.Name) })
	second := &metav1.Duration{Duration: 5 * time.Second}
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: backendName}, Spec: v1alpha1.MetricsBackendSpec{
		ResourceMetrics: &v1alpha1.ResourceMetricsSpec{},
		Sources: []v1alpha1.SourceSpec{{Name: "prometheus", Prometheus: &v1alpha1.PrometheusSource{
			URL: prometheusURL(t, "prometheus"), Interval: second, SeriesInterval: second,
		}}, {Name: "keda", Optional: true, MetricsAPI: &v1alpha1.MetricsAPISource{
			Service: v1alpha1.ExistingService{Namespace: "keda", Name: "keda-metrics-apiserver"}, Group: v1alpha1.ExternalMetricsGroup,
			TLS: v1alpha1.SourceTLS{CAConfigMapKeyRef: &v1alpha1.ConfigMapKeyReference{Name: ca.Name, Key: "ca.crt"}},
		}}},
		CustomMetrics: &v1alpha1.CustomMetricsSpec{Rules: []v1alpha1.MetricRule{{
			SeriesQuery: `checkout_requests_total{namespace!="",pod!=""}`,
			Resources: v1alpha1.RuleResources{Overrides: map[string]v1alpha1.RuleResource{
				"namespace": {Resource: "namespace"}, "pod": {Resource: "pod"},
			}},
			Name:         v1alpha1.RuleName{Matches: "^(.*)_total$", As: "${1}_per_second"},
			MetricsQuery: "sum(rate(<<.Series>>{<<.LabelMatchers>>}[20s])) by (<<.GroupBy>>)",
		}}},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{
			Rules: []v1alpha1.MetricRule{{
				SeriesQuery:  `{__name__="mail_queue_length"}`,
				Name:         v1alpha1.RuleName{As: "mail/queue_length"},
				MetricsQuery: "sum(<<.Series>>{<<.LabelMatchers>>})",
			}},
			Routes: []v1alpha1.MetricRoute{{Source: "keda", Match: v1alpha1.RouteMatch{Selector: &v1alpha1.RouteSelector{Key: "scaledobject.keda.sh/name"}}}},
		},
	}}
	if err := suite.client.Create(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
}

// startShop starts a Prometheus, and workloads and autoscalers whose metrics it has.
func startShop(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		_, _ = run("kubectl", "delete", "--ignore-not-found", "-f", filepath.Join(prometheusManifests, "prometheus.yaml"))
		_, _ = run("kubectl", "delete", "--ignore-not-found", "--wait=false", "namespace", shop, fleet)
	})
	for _, file := range []string{"prometheus.yaml", "workloads.yaml"} {
		kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(prometheusManifests, file))
	}
	kubectl(t, "-n", "monitoring", "rollout", "status", "deployment/prometheus", "--timeout=180s")
}

// waitVersion waits until the status has the version in that state, and returns the entry.
func waitVersion(t *testing.T, version string, state v1alpha1.APIServiceState) v1alpha1.APIServiceStatus {
	t.Helper()
	var found v1alpha1.APIServiceStatus
	outcome.Eventually(t, 2*time.Minute, version+" is "+string(state), func(ctx context.Context) error {
		var backend v1alpha1.MetricsBackend
		if err := suite.client.Get(ctx, ctrlclient.ObjectKey{Name: backendName}, &backend); err != nil {
			return err
		}
		for _, found = range backend.Status.APIServices {
			if found.Name == version+".metrics.k8s.io" && found.State == state {
				return nil
			}
		}
		return fmt.Errorf("the status has %+v", backend.Status.APIServices)
	})
	return found
}

// startKEDA installs KEDA as its manifests and, for what serves metrics, a chart do, with helm-controller, and waits until it scales. hack/keda.sh
// has loaded its images.
func startKEDA(t *testing.T) {
	t.Helper()
	installFlux(t)
	repository := newRepository(t, gitServer(t)+"/fleet")
	if err := os.CopyFS(filepath.Join(repository.folder, "chart"), os.DirFS(filepath.Join(suite.root, "test/keda/chart"))); err != nil {
		t.Fatal(err)
	}
	repository.commit(t, "KEDA")
	t.Cleanup(func() {
		// Finalizers of ScaledObjects are its operator's.
		for _, args := range [][]string{
			{"-n", kedaDemo, "delete", "scaledobjects", "--all", "--timeout=60s"},
			{"delete", "--ignore-not-found", "--timeout=120s", "namespace", kedaDemo},
			{"-n", fluxNamespace, "delete", "--ignore-not-found", "--timeout=120s", "helmrelease/keda"},
			{"delete", "--ignore-not-found", "--timeout=180s", "-k", "test/keda/manifests"},
		} {
			if out, err := run("kubectl", args...); err != nil {
				outcome.Unsafe(t, "remove KEDA: kubectl %s: %v: %s", strings.Join(args, " "), err, out)
			}
		}
	})
	kubectl(t, "apply", "--server-side", "-k", "test/keda/manifests")
	manifest := filepath.Join(t.TempDir(), "keda.yaml")
	if err := os.WriteFile(manifest, fmt.Appendf(nil, kedaRelease, gitServer(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--server-side", "-f", manifest)
	kubectl(t, "-n", fluxNamespace, "wait", "--for=condition=Ready", "--timeout=240s", "helmrelease/keda")
	kubectl(t, "wait", "--for=condition=Available", "--timeout=120s", "apiservice/v1beta1.external.metrics.k8s.io")
	kubectl(t, "apply", "--server-side", "-f", "test/keda/manifests/demo.yaml")
	kedaScales(t, 2)
}

const kedaRelease = `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: keda, namespace: flux-system}
spec: {interval: 1m, url: %s/fleet, ref: {branch: main}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: keda, namespace: flux-system}
spec:
  interval: 5s
  targetNamespace: keda
  storageNamespace: keda
  chart:
    spec: {chart: ./chart, sourceRef: {kind: GitRepository, name: keda}}
`

// kedaScales has KEDA scale a Deployment to the number of pods of another.
func kedaScales(t *testing.T, pods int32) {
	t.Helper()
	kubectl(t, "-n", kedaDemo, "scale", "deployment/watched", fmt.Sprintf("--replicas=%d", pods))
	outcome.Eventually(t, 3*time.Minute, fmt.Sprintf("KEDA scales to %d", pods), func(ctx context.Context) error {
		target, err := suite.core.AppsV1().Deployments(kedaDemo).Get(ctx, "target", metav1.GetOptions{})
		if err == nil && (target.Status.Replicas != pods || target.Status.ReadyReplicas != pods) {
			err = fmt.Errorf("%d pods, %d of them ready", target.Status.Replicas, target.Status.ReadyReplicas)
		}
		return err
	})
}

// addOnManager applies metrics-server's APIService each 30 seconds, as that of a managed cluster does.
type addOnManager struct {
	stop func()
	// reverted has what it found each time that somebody had changed it.
	reverted []string
}

func startAddOnManager(t *testing.T) *addOnManager {
	t.Helper()
	stock, err := getAPIService(t.Context(), "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(t.TempDir(), "apiservice.json")
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": stock.Name, "labels": map[string]string{"k8s-app": "metrics-server", "addonmanager.kubernetes.io/mode": "Reconcile"}},
		"spec":     stock.Spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, body, 0o600); err != nil {
		t.Fatal(err)
	}
	apply := func() (string, error) {
		return run("kubectl", "apply", "--server-side", "--force-conflicts", "--field-manager=kube-addon-manager", "-f", manifest)
	}
	if out, err := apply(); err != nil {
		t.Fatalf("apply metrics-server's APIService: %v: %s", err, out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m, done := &addOnManager{}, make(chan struct{})
	m.stop = func() { cancel(); <-done }
	t.Cleanup(m.stop)
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(30 * time.Second):
			}
			var live apiregistrationv1.APIService
			if err := suite.client.Get(ctx, ctrlclient.ObjectKeyFromObject(stock), &live); err != nil || !equality.Semantic.DeepEqual(live.Spec, stock.Spec) {
				m.reverted = append(m.reverted, fmt.Sprintf("%+v %v", live.Spec, err))
			}
			_, _ = apply()
		}
	}()
	return m
}

// requireIdle ends the add-on manager, which must have found the APIService as it is to be.
func (m *addOnManager) requireIdle(t *testing.T) {
	t.Helper()
	m.stop()
	if len(m.reverted) > 0 {
		outcome.Unsafe(t, "the add-on manager found metrics-server's APIService changed:\n%s", strings.Join(m.reverted, "\n"))
	}
}
