// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

// apiServices returns those in testdata, which kube-apiserver reports available.
func apiServices(t *testing.T, name string) []apiregistrationv1.APIService {
	t.Helper()
	file, err := os.ReadFile("testdata/" + name + "-apiservices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []apiregistrationv1.APIService
	for document := range strings.SplitSeq(string(file), "\n---\n") {
		var service apiregistrationv1.APIService
		if err := yaml.UnmarshalStrict([]byte(document), &service); err != nil {
			t.Fatal(err)
		}
		plugincluster.SetAvailable(&service, true, "Passed", "all checks passed")
		all = append(all, service)
	}
	return all
}

// world is a cluster whose backend serves metrics.k8s.io, and another implementation the rest.
func world(t *testing.T, name string) *plugincluster.World {
	w := plugincluster.Healthy(nil)
	w.APIServices = append(w.APIServices, apiServices(t, name)...)
	w.Others = map[string][]string{}
	for _, service := range apiServices(t, name) {
		w.Others[service.Spec.Group+"/"+service.Spec.Version] = []string{"externalmetrics"}
	}
	return w
}

// alone has the operator, and no MetricsBackend.
func alone(t *testing.T, name string) *plugincluster.World {
	w := world(t, name)
	w.Backends = nil
	w.Pods = []corev1.Pod{plugincluster.Pod("operators/metrics-backend-operator-0", "node-a", time.Hour)}
	return w
}

// run returns what an adoption prints: the streams one after the other, and the exit code.
func run(t *testing.T, w *plugincluster.World, o options) string {
	t.Helper()
	return runPlan(t, w, o, (*options).adoption)
}

func runPlan(t *testing.T, w *plugincluster.World, o options, planned func(*options, context.Context) (*plan, error)) string {
	t.Helper()
	var out, errs bytes.Buffer
	o.cluster, o.clock = plugincluster.Start(t, w).Connection, clocktesting.NewFakeClock(plugincluster.Now)
	o.streams = genericiooptions.IOStreams{Out: &out, ErrOut: &errs}
	err := o.run(t.Context(), planned)
	if err != nil && !errors.Is(err, output.ErrNotMet) {
		fmt.Fprintln(&errs, "error:", err)
	}
	return fmt.Sprintf("%s%sexit code %d\n", out.String(), errs.String(), output.ExitCode(err))
}

// What is printed is a script for a shell, and applies what --yes does.
func TestPlan(t *testing.T) {
	for name, tc := range map[string]struct {
		world func(*testing.T, string) *plugincluster.World
		of    string
		options
	}{
		"keda":               {world, "keda", options{api: "external", source: "keda", flags: " --context=prod"}},
		"keda-first":         {alone, "keda", options{api: "external"}},
		"datadog":            {alone, "datadog", options{api: "external", source: "datadog", backend: "metrics"}},
		"prometheus-adapter": {world, "prometheus-adapter", options{api: "custom"}},
		"after-routes": {func(t *testing.T, of string) *plugincluster.World {
			w := world(t, of)
			w.Backends[0].Spec.ResourceMetrics = nil
			w.APIServices[2].Annotations = map[string]string{"meta.helm.sh/release-name": "adapter\nkubectl delete all"}
			w.Backends[0].Spec.CustomMetrics = &v1alpha1.CustomMetricsSpec{
				Versions: []v1alpha1.CustomMetricsVersion{"v1beta2", "v1beta1"}, Adoption: v1alpha1.AdoptionRefuse,
				Routes: []v1alpha1.MetricRoute{{Own: &v1alpha1.OwnMetrics{}, Match: v1alpha1.RouteMatch{Metrics: []string{"END\nEND"}}}},
			}
			return w
		}, "prometheus-adapter", options{api: "custom"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.timeout = 5 * time.Minute
			got := run(t, tc.world(t, tc.of), tc.options)
			plugincluster.Golden(t, name+".txt", got)

			requireScript(t, got)
		})
	}
}

// requireScript fails if a shell would run anything but kubectl.
func requireScript(t *testing.T, printed string) {
	t.Helper()
	script := "kubectl() { if [ \"$1\" = apply ]; then while read -r line; do :; done; fi; echo \"$@\"; }\n" + strings.ReplaceAll(printed, "exit code 0\n", "")
	ran, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput()
	if err != nil || strings.Count(printed, "\nkubectl ") != strings.Count(string(ran), "\n") {
		t.Errorf("%v: %s", err, ran)
	}
}

func TestRefusals(t *testing.T) {
	sourceTo := func(name, service string, tls v1alpha1.SourceTLS) v1alpha1.SourceSpec {
		return v1alpha1.SourceSpec{Name: name, MetricsAPI: &v1alpha1.MetricsAPISource{
			Service: v1alpha1.ExistingService{Namespace: "monitoring", Name: service, Port: ptr.To[int32](443)}, Group: v1alpha1.CustomMetricsGroup, TLS: tls,
		}}
	}
	for name, tc := range map[string]struct {
		options options
		change  func(w *plugincluster.World, services []apiregistrationv1.APIService)
		want    string
	}{
		"no APIService": {options{api: "external"}, nil, "nobody serves external.metrics.k8s.io: set spec.externalMetrics of a MetricsBackend, and it does"},
		"a MetricsBackend's": {options{}, func(_ *plugincluster.World, services []apiregistrationv1.APIService) {
			services[1].Labels = map[string]string{v1alpha1.LabelBackend: "other"}
		}, "APIService v1beta2.custom.metrics.k8s.io is MetricsBackend other's already, and kubectl metrics-backend status other shows its state: for another implementation add a source and a route to it in spec.customMetrics.routes"},
		"kube-apiserver's": {options{}, func(_ *plugincluster.World, services []apiregistrationv1.APIService) { services[0].Spec.Service = nil },
			"APIService v1beta1.custom.metrics.k8s.io is served by kube-apiserver itself, and cannot be adopted: take its version out of what registers it"},
		"two Services": {options{}, func(_ *plugincluster.World, services []apiregistrationv1.APIService) {
			services[1].Spec.Service.Port = ptr.To[int32](6443)
		},
			"APIService v1beta1.custom.metrics.k8s.io points to monitoring/prometheus-adapter:443, and v1beta2.custom.metrics.k8s.io to monitoring/prometheus-adapter:6443: delete the one that nobody needs (kubectl delete apiservice), or add a source and routes for each to a MetricsBackend"},
		"written back": {options{}, func(_ *plugincluster.World, services []apiregistrationv1.APIService) {
			services[0].Annotations = map[string]string{"cert-manager.io/inject-ca-from": "monitoring/adapter"}
		}, "APIService v1beta1.custom.metrics.k8s.io is served by monitoring/prometheus-adapter:443, and cert-manager for monitoring/adapter writes it back at any time. It stays theirs; or take the annotation cert-manager.io/inject-ca-from off"},
		"several MetricsBackends": {options{}, func(w *plugincluster.World, _ []apiregistrationv1.APIService) {
			w.Backends = append(w.Backends, *plugincluster.Backend("other"))
		}, "name one of the MetricsBackends: cluster, other, with --backend"},
		"spec.existing": {options{}, func(w *plugincluster.World, _ []apiregistrationv1.APIService) {
			w.Backends[0].Spec.Existing = &v1alpha1.ExistingSpec{}
		}, "MetricsBackend cluster has spec.existing, and so no pods that pass requests on: take it out, or name another with --backend"},
		"another source": {options{}, func(w *plugincluster.World, _ []apiregistrationv1.APIService) {
			w.Backends[0].Spec.Sources = []v1alpha1.SourceSpec{sourceTo("prometheus-adapter", "prometheus-adapter", v1alpha1.SourceTLS{})}
		}, "MetricsBackend cluster has another source prometheus-adapter: choose a name with --source, such as prometheus-adapter-custom"},
		"a route": {options{}, func(w *plugincluster.World, _ []apiregistrationv1.APIService) {
			w.Backends[0].Spec.Sources = []v1alpha1.SourceSpec{sourceTo("old", "prometheus-adapter", v1alpha1.SourceTLS{})}
			w.Backends[0].Spec.CustomMetrics = &v1alpha1.CustomMetricsSpec{Routes: []v1alpha1.MetricRoute{{Own: &v1alpha1.OwnMetrics{}}, {Source: "old"}}}
		}, "spec.customMetrics.routes[1] of MetricsBackend cluster leads to this Service already: what is left is adoption: Always there; or take the route out, and this command adds its own"},
		"no name of a source": {options{source: "a;b"}, nil, `source "a;b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?'): choose a name with --source`},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t, "prometheus-adapter")
			if tc.change != nil {
				tc.change(w, w.APIServices[2:])
			}
			tc.options.api, tc.options.yes = map[bool]string{true: "external", false: "custom"}[tc.options.api != ""], true
			if diff := cmp.Diff("error: "+tc.want+"\nexit code 1\n", run(t, w, tc.options)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no operator", func(t *testing.T) {
		w := alone(t, "keda")
		w.Pods = nil
		want := "error: no pod of the operator runs, in whose namespace the CA certificates belong: install it first (kubectl get pods -A -l app.kubernetes.io/name=metrics-backend-operator)\nexit code 1\n"
		if diff := cmp.Diff(want, run(t, w, options{api: "external"})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// serve does what the operator and serving do after an apply, unless they are told not to.
func serve(w *plugincluster.World, object *unstructured.Unstructured, healthy bool) {
	if object.GetKind() != "MetricsBackend" {
		return
	}
	text, _ := json.Marshal(object)
	b := &w.Backends[0]
	_ = json.Unmarshal(text, b)
	b.Generation++
	b.Status.ObservedGeneration = b.Generation
	for i := range b.Status.Conditions {
		b.Status.Conditions[i].ObservedGeneration = b.Generation
	}
	b.Status.Sources = []v1alpha1.SourceStatus{{Name: "keda", Healthy: healthy, Reason: "CertificateUnknown", Message: "x509: unknown authority"}}
}

func TestDo(t *testing.T) {
	for name, tc := range map[string]struct {
		unhealthy bool
		// conflict is the number of the write that conflicts with that of helm.
		conflict int
		want     []string
	}{
		"done":                      {want: []string{"ConfigMap", "MetricsBackend", "MetricsBackend"}},
		"waits":                     {unhealthy: true, want: []string{"ConfigMap", "MetricsBackend"}},
		"conflict":                  {conflict: 3, want: []string{"ConfigMap", "MetricsBackend", "MetricsBackend"}},
		"conflict of the ConfigMap": {conflict: 1, want: []string{"ConfigMap"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, written := world(t, "keda"), []string{}
			w.Apply = func(object *unstructured.Unstructured) []string {
				written = append(written, object.GetKind())
				if len(written) == tc.conflict {
					return []string{"helm"}
				}
				serve(w, object, !tc.unhealthy)
				return nil
			}
			plugincluster.Golden(t, "yes-"+strings.ReplaceAll(name, " ", "-")+".txt", run(t, w, options{api: "external", source: "keda", yes: true}))
			if diff := cmp.Diff(tc.want, written); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The next apply repeats what this command has applied for the other group, and no field of others; a second run adds no route.
func TestAppliedAgain(t *testing.T) {
	w := world(t, "prometheus-adapter")
	w.APIServices = append(w.APIServices, apiServices(t, "keda")...)
	b := &w.Backends[0]
	b.Spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{
		Versions: []v1alpha1.ExternalMetricsVersion{"v1beta1"}, Adoption: v1alpha1.AdoptionAlways, AdoptDespiteLostMetrics: true, Routes: []v1alpha1.MetricRoute{{Source: "keda"}},
	}
	b.Spec.CustomMetrics = &v1alpha1.CustomMetricsSpec{Routes: []v1alpha1.MetricRoute{{Source: "prometheus-adapter"}}, Adoption: v1alpha1.AdoptionRefuse}
	adapter := (&options{api: "custom"}).sourceOf(&w.APIServices[2])
	keda := (&options{api: "external", source: "keda"}).sourceOf(&w.APIServices[len(w.APIServices)-1])
	b.Spec.Sources = []v1alpha1.SourceSpec{{Name: "prometheus", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus"}}, keda, adapter}
	// As kube-apiserver writes it.
	fields := metav1.NewFieldsV1
	b.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "helm", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: fields(`{"f:spec":{"f:externalMetrics":{"f:adoptDespiteLostMetrics":{}},"f:sources":{"k:{\"name\":\"prometheus\"}":{".":{},"f:name":{}}}}}`)},
		{Manager: "kubectl-metrics-backend", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: fields(`{"f:spec":{
			"f:customMetrics":{"f:routes":{}},
			"f:externalMetrics":{"f:adoption":{},"f:routes":{},"f:versions":{"v:\"v1beta1\"":{}}},
			"f:sources":{"k:{\"name\":\"keda\"}":{".":{},"f:metricsAPI":{},"f:name":{}}}}}`)},
	}
	o := options{api: "custom", yes: true}
	var applied []*unstructured.Unstructured
	w.Apply = func(object *unstructured.Unstructured) []string {
		applied = append(applied, object)
		return nil
	}
	run(t, w, o)
	if len(applied) != 1 { // it then waits
		t.Fatalf("applied: %v", applied)
	}
	text, err := yaml.Marshal(applied[0].Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	plugincluster.Golden(t, "again.yaml", string(text))
}
