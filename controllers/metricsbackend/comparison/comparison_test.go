// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// answers are an implementation, by path and query.
type answers map[string]string

func (a answers) get(_ context.Context, path string, query url.Values, into any) error {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body, known := a[path]
	if !known {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "metrics"}, "x")
	}
	return json.Unmarshal([]byte(body), into)
}

func TestObjects(t *testing.T) {
	t.Parallel()
	const nodes, pods = "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods"
	const none = `{"items":[]}`
	for name, tc := range map[string]struct {
		theirs, ours answers
		want         Result
		fails        bool
	}{
		"alike": {
			answers{nodes: `{"items":[{"metadata":{"name":"a"}}]}`, pods: none}, answers{nodes: `{"items":[{"metadata":{"name":"a"}}]}`, pods: none}, Result{}, false,
		},
		"ours has more": {answers{nodes: none, pods: none}, answers{nodes: `{"items":[{"metadata":{"name":"a"}}]}`, pods: none}, Result{}, false},
		"a node and a pod are missing": {
			answers{nodes: `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`, pods: `{"items":[{"metadata":{"namespace":"n","name":"p"}},{"metadata":{"namespace":"n","name":"q"}}]}`},
			answers{nodes: `{"items":[{"metadata":{"name":"a"}}]}`, pods: `{"items":[{"metadata":{"namespace":"m","name":"p"}},{"metadata":{"namespace":"n","name":"q"}}]}`},
			Result{Lost: []string{"1 of 2 nodes, such as b", "1 of 2 pods, such as n/p"}}, false,
		},
		"theirs does not answer": {answers{}, answers{}, Result{}, true},
		"ours does not answer":   {answers{nodes: none, pods: none}, answers{nodes: none}, Result{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Objects(t.Context(), schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}, tc.theirs.get, tc.ours.get)
			if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != tc.fails {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// autoscalers are of all kinds of metrics; two read the same one.
func autoscalers(t *testing.T) []autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := yaml.UnmarshalStrict([]byte(`
items:
- metadata: {namespace: shop, name: web}
  spec:
    scaleTargetRef: {kind: Deployment, name: web}
    maxReplicas: 3
    metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization}}}
    - {type: External, external: {metric: {name: Queue}, target: {type: Value}}}
    - {type: External, external: {metric: {name: s0-cron, selector: {matchLabels: {scaledobject.keda.sh/name: web}}}, target: {type: Value}}}
    - {type: Pods, pods: {metric: {name: rps, selector: {matchLabels: {code: "200"}}}, target: {type: Value}}}
    - {type: Object, object: {metric: {name: hits}, describedObject: {apiVersion: v1, kind: Service, name: front}, target: {type: Value}}}
    - {type: Object, object: {metric: {name: size}, describedObject: {apiVersion: v1, kind: Namespace, name: shop}, target: {type: Value}}}
    - {type: Object, object: {metric: {name: size}, describedObject: {apiVersion: example.com/v1, kind: Unknown, name: x}, target: {type: Value}}}
- metadata: {namespace: shop, name: worker}
  spec:
    scaleTargetRef: {kind: Deployment, name: worker}
    maxReplicas: 3
    metrics: [{type: External, external: {metric: {name: queue}, target: {type: Value}}}]
`), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func metricsOf(t *testing.T, gv schema.GroupVersion) []Metric {
	t.Helper()
	metrics, err := MetricsOf(gv, autoscalers(t), mapper())
	if err != nil {
		t.Fatal(err)
	}
	return metrics
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	m.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	return m
}

var (
	external = schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}
	custom   = schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}
)

func TestMetricsOf(t *testing.T) {
	t.Parallel()
	const externalRoot, customRoot = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/"
	for name, tc := range map[string]struct {
		gv   schema.GroupVersion
		want map[string]string
	}{
		"external": {external, map[string]string{
			externalRoot + "queue?": "queue (HorizontalPodAutoscaler shop/web)",
			externalRoot + "s0-cron?labelSelector=scaledobject.keda.sh%2Fname%3Dweb": "s0-cron (HorizontalPodAutoscaler shop/web)",
		}},
		"custom": {custom, map[string]string{
			customRoot + "pods/*/rps?metricLabelSelector=code%3D200": "pods/rps (HorizontalPodAutoscaler shop/web)",
			customRoot + "services/front/hits?":                      "services/hits (HorizontalPodAutoscaler shop/web)",
			customRoot + "metrics/size?":                             "namespaces/size (HorizontalPodAutoscaler shop/web)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[string]string{}
			for _, m := range metricsOf(t, tc.gv) {
				got[m.path+"?"+m.query.Encode()] = m.Description
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	const queue, cron = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue", "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/s0-cron?labelSelector=scaledobject.keda.sh%2Fname%3Dweb"
	const ten, ten2, twenty, none = `{"items":[{"value":"10"}]}`, `{"items":[{"value":"4"},{"value":"6500m"}]}`, `{"items":[{"value":"20"}]}`, `{"items":[]}`
	for name, tc := range map[string]struct {
		theirs, ours answers
		want         Result
	}{
		"alike, within what a value changes by itself": {answers{queue: ten, cron: ten}, answers{queue: ten2, cron: ten}, Result{}},
		"nothing to lose":         {answers{queue: none}, answers{}, Result{}},
		"ours does not know it":   {answers{queue: ten}, answers{cron: ten}, Result{Lost: []string{`queue (HorizontalPodAutoscaler shop/web): metrics "x" not found`}}},
		"ours has no value of it": {answers{cron: ten}, answers{cron: none}, Result{Lost: []string{"s0-cron (HorizontalPodAutoscaler shop/web): no value"}}},
		"another value": {
			answers{queue: ten, cron: ten}, answers{queue: twenty, cron: ten}, Result{Changed: []string{"queue (HorizontalPodAutoscaler shop/web): 10, and 20 from our pods"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Values(t.Context(), metricsOf(t, external), tc.theirs.get, tc.ours.get)
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
	for name, tc := range map[string]struct {
		message string
		ours    answers
		want    []string
	}{
		"theirs fails, and ours has one of two":  {"a timeout", answers{queue: ten}, []string{"s0-cron (HorizontalPodAutoscaler shop/web): no value, and the other implementation fails: a timeout"}},
		"KEDA's answer for the metric of nobody": {`Internal error: scaledObject name is not specified`, answers{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failing := func(context.Context, string, url.Values, any) error { return errors.New(tc.message) }
			got, err := Values(t.Context(), metricsOf(t, external), failing, tc.ours.get)
			if diff := cmp.Diff(Result{Lost: tc.want}, got); diff != "" || err != nil {
				t.Errorf("error %v (-want +got):\n%s", err, diff)
			}
		})
	}
	const rps = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/rps?metricLabelSelector=code%3D200"
	got, err := Values(t.Context(), metricsOf(t, custom), answers{rps: `{"items":[{"describedObject":{"name":"a"},"value":"1"},{"describedObject":{"name":"b"},"value":"1"}]}`}.get,
		answers{rps: `{"items":[{"describedObject":{"name":"a"},"value":"2"}]}`}.get)
	if want := (Result{Lost: []string{"pods/rps (HorizontalPodAutoscaler shop/web): no value of 1 of 2 objects"}}); err != nil || !cmp.Equal(want, got) {
		t.Errorf("error %v, %+v, want %+v", err, got, want)
	}
	// What was not compared in time is not equal.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := Values(ctx, metricsOf(t, external), answers{queue: ten}.get, answers{}.get); err == nil {
		t.Errorf("compared in no time: %+v", got)
	}
}

// A metric that is not answered is named, and keeps no other from being compared.
func TestSlowMetric(t *testing.T) {
	t.Parallel()
	const queue, cron = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue", "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/s0-cron?labelSelector=scaledobject.keda.sh%2Fname%3Dweb"
	synctest.Test(t, func(t *testing.T) {
		theirs := func(ctx context.Context, path string, query url.Values, into any) error {
			if path == queue {
				<-ctx.Done()
				return ctx.Err()
			}
			return answers{cron: `{"items":[{"value":"10"}]}`}.get(ctx, path, query, into)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*metricTimeout)
		defer cancel()
		got, err := Values(ctx, metricsOf(t, external), theirs, answers{}.get)
		want := Result{Lost: []string{
			"queue (HorizontalPodAutoscaler shop/web): no value, and the other implementation fails: context deadline exceeded", `s0-cron (HorizontalPodAutoscaler shop/web): metrics "x" not found`,
		}}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestUnserved(t *testing.T) {
	t.Parallel()
	list := func(names ...string) metav1.APIResourceList {
		var list metav1.APIResourceList
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		return list
	}
	for name, tc := range map[string]struct {
		gv        schema.GroupVersion
		discovery metav1.APIResourceList
		want      []string
	}{
		"all are listed, one in capitals": {external, list("QUEUE", "s0-cron"), nil},
		"KEDA serves its own":             {external, list("externalmetrics"), []string{"queue"}},
		"nothing is listed":               {external, list(), []string{"queue", "s0-cron"}},
		"some custom ones":                {custom, list("pods/rps", "services/hits"), []string{"namespaces/size"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, m := range Unserved(metricsOf(t, tc.gv), tc.discovery) {
				got = append(got, m.name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
