// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

// adopted is a cluster whose backend has taken KEDA's APIService over.
func adopted(t *testing.T) *plugincluster.World {
	t.Helper()
	w := world(t, "keda")
	o := &options{api: "external", source: "keda"}
	theirs := &w.APIServices[len(w.APIServices)-1]
	b := &w.Backends[0]
	b.Spec.Sources = []v1alpha1.SourceSpec{{Name: "prometheus", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus"}}, o.sourceOf(theirs)}
	b.Spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{Routes: []v1alpha1.MetricRoute{{Source: "keda"}}, Adoption: v1alpha1.AdoptionAlways}
	take(t, theirs, b.Name)
	b.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: fieldManager, Operation: metav1.ManagedFieldsOperationApply,
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:externalMetrics":{"f:routes":{}},"f:sources":{"k:{\"name\":\"keda\"}":{".":{},"f:name":{}}}}}`)}}
	return w
}

// take does what the operator does to an APIService that it takes over.
func take(t *testing.T, service *apiregistrationv1.APIService, backend string) {
	t.Helper()
	before := service.Spec.Service
	record, err := json.Marshal(v1alpha1.PreviousOwner{Service: v1alpha1.ExistingService{Namespace: before.Namespace, Name: before.Name, Port: before.Port}})
	if err != nil {
		t.Fatal(err)
	}
	service.Annotations = map[string]string{v1alpha1.AnnotationPreviousOwner: string(record)}
	service.Labels = map[string]string{v1alpha1.LabelBackend: backend}
	service.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "metrics-backend-system", Name: "metrics-serving-" + backend, Port: ptr.To[int32](443)}
}

func external(w *plugincluster.World) *apiregistrationv1.APIService {
	return &w.APIServices[len(w.APIServices)-1]
}

func TestReleasePlan(t *testing.T) {
	for name, change := range map[string]func(*plugincluster.World){
		"release": func(*plugincluster.World) {},
		"release-alone": func(w *plugincluster.World) {
			w.Backends[0].Spec.ResourceMetrics, w.Backends[0].Status.APIServices = nil, nil
		},
		"release-others": func(w *plugincluster.World) {
			b := &w.Backends[0]
			b.ManagedFields = []metav1.ManagedFieldsEntry{
				{Manager: fieldManager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:externalMetrics":{"f:adoption":{}}}}`)},
				{Manager: "helm\nkubectl delete all", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:externalMetrics":{"f:rules":{}}}}`)},
				{Manager: "flux", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:resourceMetrics":{}}}`)},
			}
			ours := *external(w)
			ours.Name, ours.Spec.Version, ours.Annotations = "v1beta2.external.metrics.k8s.io", "v1beta2", nil
			w.APIServices = append(w.APIServices[:len(w.APIServices):len(w.APIServices)], ours)
			b.Spec.Sources = b.Spec.Sources[:1]
		},
		"release-not-taken-over": func(w *plugincluster.World) {
			w.APIServices = append(w.APIServices[:len(w.APIServices)-1], apiServices(t, "keda")...)
		},
		"release-kept":          func(w *plugincluster.World) { w.Backends[0].Spec.ExternalMetrics = nil },
		"release-own-configmap": func(w *plugincluster.World) { w.Backends[0].ManagedFields[0].Manager = "helm" },
		"release-again": func(w *plugincluster.World) {
			w.APIServices = append(w.APIServices[:len(w.APIServices)-1], apiServices(t, "keda")...)
			w.Backends[0].Spec.ExternalMetrics = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := adopted(t)
			change(w)
			got := runPlan(t, w, options{api: "external", timeout: 5 * time.Minute, flags: " --context=prod"}, (*options).release)
			plugincluster.Golden(t, name+".txt", got)
			requireScript(t, got)
		})
	}
}

func TestReleaseRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*plugincluster.World)
		want   string
	}{
		"nobody before": {func(w *plugincluster.World) { external(w).Annotations = nil },
			"no MetricsBackend has taken external.metrics.k8s.io over from another implementation: nobody gets it back"},
		"it is down": {func(w *plugincluster.World) {
			w.Backends[0].Status.Sources = []v1alpha1.SourceStatus{{Name: "keda", Reason: "Timeout", Message: "no answer"}}
		}, "keda/keda-operator-metrics-apiserver:443 does not answer (Timeout: no answer): an implementation that does not answer gets no APIService back. Start it first"},
		"another group is kept": {func(w *plugincluster.World) {
			w.Backends[0].Spec.ResourceMetrics = nil
			w.Backends[0].Status.APIServices = []v1alpha1.APIServiceStatus{{Name: "v1beta1.custom.metrics.k8s.io"}}
		}, "MetricsBackend cluster is not released of custom.metrics.k8s.io yet, and would be deleted: kubectl metrics-backend wait --for=released=custom.metrics.k8s.io"},
		"two owners": {func(w *plugincluster.World) {
			second := *external(w).DeepCopy()
			second.Name, second.Spec.Version, second.Labels[v1alpha1.LabelBackend] = "v1beta2.external.metrics.k8s.io", "v1beta2", "other"
			w.APIServices = append(w.APIServices, second)
		}, "APIServices of external.metrics.k8s.io are of several implementations or MetricsBackends, such as keda/keda-operator-metrics-apiserver:443 and keda/keda-operator-metrics-apiserver:443: take spec.externalMetrics out of each MetricsBackend by itself"},
		"no source": {func(w *plugincluster.World) {
			*external(w) = apiServices(t, "keda")[0]
			w.Backends[0].Spec.Sources = nil
		},
			"no MetricsBackend has taken external.metrics.k8s.io over from another implementation: nobody gets it back"},
		"an unreadable record": {func(w *plugincluster.World) { external(w).Annotations[v1alpha1.AnnotationPreviousOwner] = "{" },
			"read annotation metricsbackend.io/previous-owner of APIService v1beta1.external.metrics.k8s.io, without which it would be deleted: unexpected end of JSON input: let the implementation apply it again"},
		"no MetricsBackend": {func(w *plugincluster.World) { external(w).Labels[v1alpha1.LabelBackend] = "other" },
			`APIServices of external.metrics.k8s.io are of MetricsBackend "other", which there is not: let the implementation apply them again`},
	} {
		t.Run(name, func(t *testing.T) {
			w := adopted(t)
			tc.change(w)
			if diff := cmp.Diff("error: "+tc.want+"\nexit code 1\n", runPlan(t, w, options{api: "external", yes: true}, (*options).release)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDoRelease(t *testing.T) {
	const backend = "/apis/metricsbackend.io/v1alpha1/metricsbackends/cluster"
	section := "PATCH " + backend + ` [{"op":"remove","path":"/spec/externalMetrics"}]`
	source := "PATCH " + backend + ` [{"op":"test","path":"/spec/sources/1/name","value":"keda"},{"op":"remove","path":"/spec/sources/1"}]`
	const ca = "DELETE /api/v1/namespaces/metrics-backend-system/configmaps/keda-ca"
	for name, tc := range map[string]struct {
		alone, kept bool
		// fails is the number of the request that fails, with that code.
		fails, code int
		want        []string
	}{
		"done":              {want: []string{section, source, ca}},
		"alone":             {alone: true, want: []string{"DELETE " + backend, ca}},
		"kept":              {kept: true, want: []string{section}},
		"forbidden":         {fails: 1, code: http.StatusForbidden, want: []string{section}},
		"source has moved":  {fails: 2, code: http.StatusUnprocessableEntity, want: []string{section, source}},
		"ConfigMap is gone": {fails: 3, code: http.StatusNotFound, want: []string{section, source, ca}},
	} {
		t.Run(name, func(t *testing.T) {
			w := adopted(t)
			if tc.alone {
				w.Backends[0].Spec.ResourceMetrics, w.Backends[0].Status.APIServices = nil, nil
			}
			var requests []string
			w.Write = func(request string) int {
				method, rest, _ := strings.Cut(request, " ")
				path, body, _ := strings.Cut(rest, " ")
				if method == http.MethodDelete {
					body = "" // options
				}
				requests = append(requests, strings.TrimSpace(fmt.Sprint(method, " ", path, " ", body)))
				if len(requests) == tc.fails {
					return tc.code
				}
				if len(requests) == 1 && !tc.kept {
					*external(w) = apiServices(t, "keda")[0]
				}
				return http.StatusOK
			}
			plugincluster.Golden(t, "release-yes-"+strings.ReplaceAll(name, " ", "-")+".txt", runPlan(t, w, options{api: "external", yes: true}, (*options).release))
			if diff := cmp.Diff(tc.want, requests); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
