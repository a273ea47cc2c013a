// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

func testNode(change func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: "1", ResourceVersion: "5", Labels: map[string]string{"zone": "x"},
			Annotations:   map[string]string{v1alpha1.AnnotationMetricsPath: "/m", "other": "long"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"},
		Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			Images:          []corev1.ContainerImage{{Names: []string{"big"}}},
		},
	}
	if change != nil {
		change(node)
	}
	return node
}

func TestTrimNode(t *testing.T) {
	got, err := trimNode()(testNode(nil))
	if err != nil {
		t.Fatalf("trim: %v", err)
	}
	want := testNode(func(n *corev1.Node) {
		n.ManagedFields, n.Spec, n.Status.Images = nil, corev1.NodeSpec{}, nil
		delete(n.Annotations, "other")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("trimmed node (-want +got):\n%s", diff)
	}
}

func sameMap(a, b map[string]string) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// recorder is a metaTable and a nodeTarget that records calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *recorder) SetMeta(k samplestore.Key, m *samplestore.Meta) {
	r.note("set %s/%s uid=%s labels=%v", k.Namespace, k.Name, m.UID, slices.Sorted(maps.Keys(m.Labels)))
}
func (r *recorder) DeleteMeta(k samplestore.Key) { r.note("delete %s/%s", k.Namespace, k.Name) }
func (r *recorder) RetainMeta(keep func(samplestore.Key) bool) {
	for _, name := range []string{"p", "q"} {
		r.note("keep ns/%s: %t", name, keep(samplestore.Key{Namespace: "ns", Name: name}))
	}
}
func (r *recorder) SetNode(n *kubelet.Node) { r.note("node %s", n.Name) }
func (r *recorder) DeleteNode(name string)  { r.note("no node %s", name) }

// TestNodeEvents drives the handler as an informer does, with trimmed objects.
func TestNodeEvents(t *testing.T) {
	tests := map[string]struct {
		drive func(cache.ResourceEventHandler)
		want  []string
	}{
		"added": {
			drive: func(h cache.ResourceEventHandler) { h.OnAdd(testNode(nil), true) },
			want:  []string{"set /a uid=1 labels=[zone]", "node a"},
		},
		"a heartbeat is no news": {
			drive: func(h cache.ResourceEventHandler) {
				h.OnUpdate(testNode(nil), testNode(func(n *corev1.Node) { n.ResourceVersion = "6" }))
			},
			want: []string{"set /a uid=1 labels=[zone]", "node a"}, // which the table and the scraper compare
		},
		"another address": {
			drive: func(h cache.ResourceEventHandler) {
				h.OnUpdate(testNode(nil), testNode(func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.0.0.2" }))
			},
			want: []string{"set /a uid=1 labels=[zone]", "node a"},
		},
		"another path": {
			drive: func(h cache.ResourceEventHandler) {
				h.OnUpdate(testNode(nil), testNode(func(n *corev1.Node) { n.Annotations = nil }))
			},
			want: []string{"set /a uid=1 labels=[zone]", "node a"},
		},
		"other labels": {
			drive: func(h cache.ResourceEventHandler) {
				h.OnUpdate(testNode(nil), testNode(func(n *corev1.Node) { n.Labels = map[string]string{"pool": "y"} }))
			},
			want: []string{"set /a uid=1 labels=[pool]", "node a"},
		},
		"replaced under its name": {
			drive: func(h cache.ResourceEventHandler) {
				h.OnUpdate(testNode(nil), testNode(func(n *corev1.Node) { n.UID = "2" }))
			},
			want: []string{"set /a uid=2 labels=[zone]", "node a"},
		},
		"deleted": {
			drive: func(h cache.ResourceEventHandler) { h.OnDelete(testNode(nil)) },
			want:  []string{"delete /a", "no node a"},
		},
		"deleted unseen": {
			drive: func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "a"}) },
			want:  []string{"delete /a", "no node a"},
		},
		"foreign objects": {
			drive: func(h cache.ResourceEventHandler) {
				h.OnAdd("x", false)
				h.OnUpdate(testNode(nil), "x")
				h.OnDelete("x")
				h.OnDelete(cache.DeletedFinalStateUnknown{Key: "a/b/c"})
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			tc.drive(nodeEvents(r, r))
			if diff := cmp.Diff(tc.want, r.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}
