// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// sameQuantity compares what a client sees of a quantity: its canonical text.
var sameQuantity = cmp.Comparer(func(a, b apiresource.Quantity) bool { return a.String() == b.String() })

func usageOf(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    apiresource.MustParse(cpu),
		corev1.ResourceMemory: apiresource.MustParse(memory),
	}
}

// getStore holds one of each case that a get can meet.
func getStore() *point.Store {
	store := newStore()
	put(store.Nodes, "", "node-a", map[string]string{"kubernetes.io/os": "linux"},
		sample(-time.Second, point.Usage{CPU: 1_234_567_890, Memory: 3 << 30, Swap: 1 << 20, HasSwap: true}))
	put(store.Nodes, "", "fresh-node", nil, nil)
	put(store.Pods, "default", "web-0", map[string]string{"app": "web"}, sample(-2*time.Second,
		point.Usage{Name: "app", CPU: 250_000_000, Memory: 12345 << 10},
		point.Usage{Name: "proxy", CPU: 7, Memory: 1000}))
	put(store.Pods, "default", "fresh-pod", nil, nil)
	put(store.Pods, "default", "frozen-pod", nil, sample(-maxAge-time.Second, point.Usage{Name: "app"}))
	put(store.Pods, "default", "deleted-pod", nil, sample(0, point.Usage{Name: "app"}))
	store.Pods.DeleteMeta(point.Key{Namespace: "default", Name: "deleted-pod"})
	// A kubelet tells of pods that kube-apiserver does not have, static ones in
	// the first seconds of a node for example.
	store.Pods.Publish([]point.Update{{Key: point.Key{Namespace: "default", Name: "orphan"}, Point: sample(0, point.Usage{Name: "app"})}})
	return store
}

func TestGet(t *testing.T) {
	server := serve(t, getStore(), enableAll)
	sampled := metav1.Time{Time: t0.Add(-2 * time.Second).Truncate(time.Second).Local()}

	t.Run("pod", func(t *testing.T) {
		want := metricsv1.PodMetrics{
			TypeMeta: metav1.TypeMeta{Kind: "PodMetrics", APIVersion: "metrics.k8s.io/v1"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "web-0", Namespace: "default", Labels: map[string]string{"app": "web"},
				ResourceVersion: "1788091198250", CreationTimestamp: sampled,
			},
			Timestamp: sampled,
			Window:    metav1.Duration{Duration: 15012 * time.Millisecond},
			Containers: []metricsv1.ContainerMetrics{
				{Name: "app", Usage: usageOf("250m", "12345Ki")},
				{Name: "proxy", Usage: usageOf("7n", "1k")},
			},
		}
		var got metricsv1.PodMetrics
		decode(t, get(t, server, "/apis/metrics.k8s.io/v1/namespaces/default/pods/web-0", ""), &got)
		if diff := cmp.Diff(want, got, sameQuantity); diff != "" {
			t.Errorf("PodMetrics (-want +got):\n%s", diff)
		}
	})
	t.Run("node", func(t *testing.T) {
		sampled := metav1.Time{Time: t0.Add(-time.Second).Truncate(time.Second).Local()}
		usage := usageOf("1234567890n", "3Gi")
		usage["swap"] = apiresource.MustParse("1Mi")
		want := metricsv1beta1.NodeMetrics{
			TypeMeta: metav1.TypeMeta{Kind: "NodeMetrics", APIVersion: "metrics.k8s.io/v1beta1"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "node-a", Labels: map[string]string{"kubernetes.io/os": "linux"},
				ResourceVersion: "1788091199250", CreationTimestamp: sampled,
			},
			Timestamp: sampled,
			Window:    metav1.Duration{Duration: 15012 * time.Millisecond},
			Usage:     usage,
		}
		var got metricsv1beta1.NodeMetrics
		decode(t, get(t, server, "/apis/metrics.k8s.io/v1beta1/nodes/node-a", ""), &got)
		if diff := cmp.Diff(want, got, sameQuantity); diff != "" {
			t.Errorf("NodeMetrics (-want +got):\n%s", diff)
		}
	})
}

func decode(t testing.TB, a answer, into any) {
	t.Helper()
	if a.code != http.StatusOK {
		t.Fatalf("got code %d: %s", a.code, a.body)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		t.Fatalf("decoding %s: %v", a.body, err)
	}
}

// TestErrors holds the texts and reasons that clients know from other API servers.
func TestErrors(t *testing.T) {
	server := serve(t, getStore(), enableAll)
	tests := map[string]struct {
		path   string
		accept string
		code   int32
		reason metav1.StatusReason
		text   string
	}{
		"unknown pod": {
			path: "namespaces/default/pods/nobody",
			code: 404, reason: metav1.StatusReasonNotFound, text: `pods "nobody" not found`,
		},
		"pod of another namespace": {
			path: "namespaces/kube-system/pods/web-0",
			code: 404, reason: metav1.StatusReasonNotFound, text: `pods "web-0" not found`,
		},
		"deleted pod": {
			path: "namespaces/default/pods/deleted-pod",
			code: 404, reason: metav1.StatusReasonNotFound, text: `pods "deleted-pod" not found`,
		},
		"pod that only a kubelet knows": {
			path: "namespaces/default/pods/orphan",
			code: 404, reason: metav1.StatusReasonNotFound, text: `pods "orphan" not found`,
		},
		"pod without metrics": {
			path: "namespaces/default/pods/fresh-pod",
			code: 404, reason: metav1.StatusReasonNotFound, text: `podmetrics.metrics.k8s.io "default/fresh-pod" not found`,
		},
		"pod whose metrics are too old": {
			path: "namespaces/default/pods/frozen-pod",
			code: 404, reason: metav1.StatusReasonNotFound, text: `podmetrics.metrics.k8s.io "default/frozen-pod" not found`,
		},
		"unknown node": {
			path: "nodes/nobody",
			code: 404, reason: metav1.StatusReasonNotFound, text: `nodes "nobody" not found`,
		},
		"node without metrics": {
			path: "nodes/fresh-node",
			code: 404, reason: metav1.StatusReasonNotFound, text: `nodemetrics.metrics.k8s.io "fresh-node" not found`,
		},
		"unknown field": {
			path: "pods?fieldSelector=spec.nodeName%3Dnode-a",
			code: 400, reason: metav1.StatusReasonBadRequest, text: `"spec.nodeName" is not a known field selector: only "metadata.name", "metadata.namespace"`,
		},
		"no field selector": {
			path: "pods?fieldSelector=nonsense",
			code: 400, reason: metav1.StatusReasonBadRequest, text: `invalid selector: 'nonsense'; can't understand 'nonsense'`,
		},
		"no label selector": {
			path: "pods?labelSelector=a%20b%20c",
			code: 400, reason: metav1.StatusReasonBadRequest, text: `unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt`,
		},
		"continue is no base64": {
			path: "pods?limit=1&continue=!!",
			code: 400, reason: metav1.StatusReasonBadRequest, text: `invalid continue token: continue key is not valid: illegal base64 data at input byte 0`,
		},
		"continue of another resource": {
			path: "pods?limit=1&continue=" + encodeContinue(point.Key{Name: "node-a"}, 1),
			code: 400, reason: metav1.StatusReasonBadRequest, text: `invalid continue token: continue key is not valid: it belongs to another list`,
		},
		"continue of another namespace": {
			path: "namespaces/default/pods?limit=1&continue=" + encodeContinue(point.Key{Namespace: "kube-system", Name: "a"}, 1),
			code: 400, reason: metav1.StatusReasonBadRequest, text: `invalid continue token: continue key is not valid: it belongs to another list`,
		},
		"a Table with unknown content": {
			path: "pods?includeObject=Everything", accept: "application/json;as=Table;v=v1;g=meta.k8s.io",
			code: 400, reason: metav1.StatusReasonBadRequest,
			text: `Unable to convert to Table as requested: includeObject: Invalid value: "Everything": must be 'Metadata', 'Object', 'None', or empty`,
		},
		"unknown media type": {
			path: "pods", accept: "text/html",
			code: 406, reason: "NotAcceptable",
			text: "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor, " +
				"application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor;stream=watch",
		},
	}
	for name, test := range tests {
		for _, version := range GroupVersions() {
			t.Run(version.Version+" "+name, func(t *testing.T) {
				a := get(t, server, "/apis/"+version.String()+"/"+test.path, test.accept)
				var status metav1.Status
				if err := json.Unmarshal(a.body, &status); err != nil {
					t.Fatalf("got code %d and no Status: %s", a.code, a.body)
				}
				type outcome struct {
					HTTP, Code int32
					Reason     metav1.StatusReason
					Text       string
				}
				want := outcome{HTTP: test.code, Code: test.code, Reason: test.reason, Text: test.text}
				got := outcome{HTTP: int32(a.code), Code: status.Code, Reason: status.Reason, Text: status.Message}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestOnlyReads holds that no verb but get, list and watch exists.
func TestOnlyReads(t *testing.T) {
	server := serve(t, getStore(), enableAll)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		for _, path := range []string{"pods", "namespaces/default/pods", "namespaces/default/pods/web-0", "nodes", "nodes/node-a"} {
			t.Run(method+" "+path, func(t *testing.T) {
				request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/apis/metrics.k8s.io/v1/"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Client().Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				if response.StatusCode != http.StatusMethodNotAllowed {
					t.Errorf("got code %d, want %d", response.StatusCode, http.StatusMethodNotAllowed)
				}
			})
		}
	}
}
