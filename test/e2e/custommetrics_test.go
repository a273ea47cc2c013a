// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/watchconformance"
)

const (
	// prometheusManifests are a real Prometheus, its workloads and their autoscalers;
	// hack/prometheus.sh loads the images.
	prometheusManifests = "test/prometheus/manifests"
	// shop is the namespace of the workloads, fleet another one.
	shop  = "shop"
	fleet = "fleet"
)

// startCustomMetrics has a real Prometheus scrape real workloads, and the backend serve
// what prometheus-adapter's configuration, imported by the plugin, makes of them.
func startCustomMetrics(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		_, _ = run("kubectl", "delete", "--ignore-not-found", "--wait=false", "namespace", shop, fleet)
	})
	startPrometheus(t)
	kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(prometheusManifests, "workloads.yaml"))
	kubectl(t, "-n", "monitoring", "rollout", "status", "deployment/prometheus", "--timeout=180s")

	out, err := run(plugin(), "import", "prometheus-adapter",
		filepath.Join(prometheusManifests, "adapter-config.yaml"), "--prometheus-url="+prometheusURL(t, "prometheus"))
	if err != nil {
		t.Fatalf("import prometheus-adapter's configuration: %v\n%s", err, out)
	}
	var imported v1alpha1.MetricsBackend
	if err := yaml.UnmarshalStrict([]byte(out), &imported); err != nil {
		t.Fatalf("read what the import wrote: %v\n%s", err, out)
	}
	changeBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Sources, spec.CustomMetrics, spec.ExternalMetrics = imported.Spec.Sources, imported.Spec.CustomMetrics, imported.Spec.ExternalMetrics
		for i := range spec.Sources {
			spec.Sources[i].Prometheus.Interval = &metav1.Duration{Duration: 5 * time.Second}
			spec.Sources[i].Prometheus.SeriesInterval = &metav1.Duration{Duration: 5 * time.Second}
		}
	})
	for _, group := range []string{"v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"} {
		kubectl(t, "wait", "--for=create", "--timeout=120s", "apiservice/"+group)
		kubectl(t, "wait", "--for=condition=Available", "--timeout=120s", "apiservice/"+group)
	}
	waitReady(t)
}

// prometheusURL is by IP, since the cluster has no name server.
func prometheusURL(t *testing.T, service string) string {
	t.Helper()
	found, err := suite.core.CoreV1().Services("monitoring").Get(t.Context(), service, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + net.JoinHostPort(found.Spec.ClusterIP, "9090")
}

// customMetrics runs the tests that need startCustomMetrics. It is a companion of TestWatch.
func customMetrics(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"autoscalers":   autoscaleByMetrics,
		"rights":        readByRights,
		"plugin":        explainMetrics,
		"watch":         watchMetrics,
		"conformance":   valuesConformance,
		"policy":        denyMetric,
		"scale to zero": scaleToZero,
		"edited rule":   editRule,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// autoscaleByMetrics has the stock controller scale by each type of metric.
func autoscaleByMetrics(t *testing.T) {
	for name, kind := range map[string]autoscalingv2.MetricSourceType{
		"cart": autoscalingv2.PodsMetricSourceType, "orders": autoscalingv2.ObjectMetricSourceType, "mailer": autoscalingv2.ExternalMetricSourceType,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			outcome.Eventually(t, 3*time.Minute, "the HPA is ScalingActive and has scaled up", func(ctx context.Context) error {
				return scaledUp(ctx, types.NamespacedName{Namespace: shop, Name: name}, kind)
			})
		})
	}
}

// readByRights: RBAC decides metric by metric, and watch apart from get.
func readByRights(t *testing.T) {
	const reader = "system:serviceaccount:shop:default"
	meta := metav1.ObjectMeta{Namespace: shop, Name: "one-metric"}
	for _, object := range []ctrlclient.Object{
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"custom.metrics.k8s.io"}, Resources: []string{"pods/checkout_requests_per_second"}, Verbs: []string{"get"},
		}}},
		&rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: shop, Name: "default"}},
		},
	} {
		if err := suite.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	const custom, external = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
	for path, allowed := range map[string]bool{
		custom + "/namespaces/shop/pods/*/checkout_requests_per_second":              true,
		custom + "/namespaces/shop/pods/*/checkout_requests_per_second?explain=true": true,
		custom + "/namespaces/shop/pods/*/items_before":                              false,
		custom + "/namespaces/shop/pods/*/items_before?explain=true":                 false,
		custom + "/namespaces/fleet/pods/*/checkout_requests_per_second":             false,
		custom + "/watch/namespaces/shop/pods/*/checkout_requests_per_second":        false,
		// kube-apiserver takes it for a get; serving knows what it is.
		custom + "/namespaces/shop/pods/*/checkout_requests_per_second?watch=true&timeoutSeconds=1": false,
		external + `/namespaces/shop/mail%5C%7Cqueue_length`:                                        false,
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			outcome.Eventually(t, time.Minute, "RBAC decides", func(context.Context) error {
				out, err := run("kubectl", "get", "--raw", path, "--as="+reader)
				switch {
				case allowed && err != nil:
					return fmt.Errorf("%w: %s", err, out)
				case !allowed && err == nil:
					return fmt.Errorf("it is allowed: %s", out)
				case !allowed && !strings.Contains(out, "Forbidden") && !strings.Contains(out, "forbidden"):
					return fmt.Errorf("it is refused for another reason: %s", out)
				}
				return nil
			})
		})
	}
}

// editRule: an edited rule is in force on each pod, and no pod restarts for it.
func editRule(t *testing.T) {
	const before, after = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/items_before", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/items_after"
	waitForMetric(t, before)
	pods := startsOfPods(t)
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		for i := range spec.CustomMetrics.Rules {
			if rule := &spec.CustomMetrics.Rules[i]; rule.Name.As == "items_before" {
				rule.Name.As = "items_after"
			}
		}
	})
	edited := time.Now()
	outcome.Eventually(t, time.Minute, "each pod serves the edited rule, and none the old one", func(ctx context.Context) error {
		return eachPod(ctx, func(client rest.Interface) error {
			if err := readValue(ctx, client, after); err != nil {
				return err
			}
			if body, err := client.Get().RequestURI(before).DoRaw(ctx); err == nil {
				return fmt.Errorf("the old one is served: %s", body)
			}
			return nil
		})
	})
	outcome.Measure(t, "an edited rule is in force on each pod", time.Since(edited), 10*time.Second)
	if got := startsOfPods(t); got != pods {
		outcome.Unsafe(t, "pods were replaced or restarted:\n%s\nnow:\n%s", pods, got)
	}
}

// valuesConformance runs the suite's lines that fit values.
func valuesConformance(t *testing.T) {
	waitForMetric(t, "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/checkout_requests_per_second")
	waitForMetric(t, "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/mail%5C%7Cqueue_length")
	for name, api := range map[string]watchconformance.API{
		"custom":   watchconformance.CustomMetric(schema.GroupResource{Resource: "pods"}, shop, "checkout_requests_per_second"),
		"external": watchconformance.ExternalMetric(shop, `mail\|queue_length`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Discovery follows the metrics within seconds.
			outcome.Eventually(t, time.Minute, "discovery of each pod names the metric", func(ctx context.Context) error {
				return eachPod(ctx, func(client rest.Interface) error { return discoverMetric(ctx, client, api) })
			})
			// Beside the other tests all is slow.
			report, err := watchconformance.Run(t.Context(), suite.config, api, watchconformance.Options{Patience: 30 * time.Second, PointInterval: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", report)
			if !report.Served {
				t.Error("discovery does not name the verb watch")
			}
			for _, r := range report.With(watchconformance.Failed, watchconformance.Promised) {
				t.Errorf("%s of %s %s: %s", r.Check, r.Version, r.Resource, r.Why)
			}
		})
	}
}

// discoverMetric returns an error unless each version in discovery names the metric.
func discoverMetric(ctx context.Context, client rest.Interface, api watchconformance.API) error {
	var group metav1.APIGroup
	if err := client.Get().AbsPath("/apis", api.Group).Do(ctx).Into(&group); err != nil {
		return err
	}
	for _, version := range group.Versions {
		var found metav1.APIResourceList
		if err := client.Get().AbsPath("/apis", version.GroupVersion).Do(ctx).Into(&found); err != nil {
			return err
		}
		if !slices.ContainsFunc(found.APIResources, func(r metav1.APIResource) bool { return r.Name == api.Resources[0].Name }) {
			return fmt.Errorf("%s names %d others", version.GroupVersion, len(found.APIResources))
		}
	}
	return nil
}

// denyMetric: a policy denies a metric to autoscalers that are there, to those that are
// written, and to everybody else, in its namespace and nowhere else.
func denyMetric(t *testing.T) {
	const denied = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/plant_temperature_celsius"
	hpa, policy := filepath.Join(prometheusManifests, "denied.yaml"), filepath.Join(prometheusManifests, "policy.yaml")
	waitForMetric(t, denied)
	kubectl(t, "apply", "--server-side", "-f", hpa)
	plant := func(status corev1.ConditionStatus, words string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := scalingActive(ctx, types.NamespacedName{Namespace: shop, Name: "plant"}, status, words)
			return err
		}
	}
	outcome.Eventually(t, 2*time.Minute, "the HPA is ScalingActive", plant(corev1.ConditionTrue, ""))

	t.Cleanup(func() { _, _ = run("kubectl", "delete", "--ignore-not-found", "-f", policy) })
	kubectl(t, "apply", "--server-side", "-f", policy)
	const name = "plants-are-secret"
	outcome.Eventually(t, time.Minute, "a query is denied", func(ctx context.Context) error {
		return eachPod(ctx, func(client rest.Interface) error {
			if err := client.Get().RequestURI(denied).Do(ctx).Error(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), name) {
				return fmt.Errorf("want a refusal by the policy, got %w", err)
			}
			return nil
		})
	})
	waitForMetric(t, strings.Replace(denied, "/shop/", "/"+fleet+"/", 1))
	outcome.Eventually(t, time.Minute, "an HPA with the metric is denied at admission", func(context.Context) error {
		other, err := run("kubectl", "create", "--dry-run=server", "-f", filepath.Join(prometheusManifests, "denied-later.yaml"))
		if err == nil || !strings.Contains(other, "denied request") || !strings.Contains(other, name) {
			return fmt.Errorf("%w: %s", err, other)
		}
		return nil
	})
	// One that is older than the policy is not locked.
	kubectl(t, "-n", shop, "annotate", "--overwrite", "hpa/plant", "test/edited=true")
	outcome.Eventually(t, 2*time.Minute, "the HPA says why it does not scale", plant(corev1.ConditionFalse, name))
}

// explainMetrics runs the plugin against what runs.
func explainMetrics(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"pods": {args: []string{"checkout_requests_per_second", "--for=pods", "-l", "app=cart"},
			want: []string{"spec.customMetrics.rules[0]", "prometheus, asked each 5s", "sum(rate(checkout_requests_total{", `namespace="shop"`, "cart-"}},
		"by discovery": {args: []string{"mail/queue_length"},
			want: []string{"spec.externalMetrics.rules[0]", "sum(last_over_time(mail_queue_length{", `{queue="outgoing"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			outcome.Eventually(t, 2*time.Minute, "the metric is explained", func(context.Context) error {
				out, err := run(plugin(), append([]string{"explain", "-n", shop}, test.args...)...)
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				if i := slices.IndexFunc(test.want, func(s string) bool { return !strings.Contains(out, s) }); i >= 0 {
					return fmt.Errorf("no %q in\n%s", test.want[i], out)
				}
				return nil
			})
		})
	}
}
