// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

var sampled = time.Unix(1_800_000_000, 0)

// podMetrics returns a list of pods that were sampled a second after each other.
func podMetrics(n int) *metricsv1beta1.PodMetricsList {
	list := &metricsv1beta1.PodMetricsList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for i := range n {
		list.Items = append(list.Items, metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a-pod", Labels: map[string]string{"app": "window"}},
			Timestamp:  metav1.NewTime(sampled.Add(time.Duration(i) * time.Second)),
			Window:     metav1.Duration{Duration: 10 * time.Second},
			Containers: []metricsv1beta1.ContainerMetrics{
				{Name: "one", Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m")}},
				{Name: "two", Usage: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}},
			},
		})
	}
	return list
}

// asUnknown encodes a list in protobuf as API servers do.
func asUnknown(t *testing.T, list interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "metrics.k8s.io/v1beta1", Kind: "PodMetricsList"}, Raw: raw}
	encoded, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), encoded...)
}

func compressed(t *testing.T, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestCount(t *testing.T) {
	plain, err := json.Marshal(podMetrics(3))
	if err != nil {
		t.Fatal(err)
	}
	pretty, err := json.MarshalIndent(podMetrics(3), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	table, err := json.Marshal(metav1.Table{Rows: []metav1.TableRow{{Cells: []any{"a-pod", "1m"}}, {Cells: []any{"b-pod", "1m"}}}})
	if err != nil {
		t.Fatal(err)
	}
	nodes := &metricsv1beta1.NodeMetricsList{Items: []metricsv1beta1.NodeMetrics{{ObjectMeta: metav1.ObjectMeta{Name: "a-node"}, Timestamp: metav1.NewTime(sampled)}}}
	for name, tc := range map[string]struct {
		body  []byte
		count func([]byte) (int, error)
		want  int
	}{
		"JSON":               {plain, countJSON, 3},
		"pretty":             {pretty, countJSON, 3},
		"compressed":         {compressed(t, plain), countGzip, 3},
		"too small":          {plain, countGzip, 3},
		"table":              {table, countTable, 2},
		"protobuf":           {asUnknown(t, podMetrics(3)), countProtobuf, 3},
		"protobuf, no items": {asUnknown(t, podMetrics(0)), countProtobuf, 0},
		"protobuf, nodes":    {asUnknown(t, nodes), countProtobuf, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.count(tc.body)
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("%d objects, want %d", got, tc.want)
			}
		})
	}
}

func TestEachTimestamp(t *testing.T) {
	var got []time.Time
	if err := eachTimestamp(asUnknown(t, podMetrics(2)), func(at time.Time) { got = append(got, at) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]time.Time{sampled, sampled.Add(time.Second)}, got); diff != "" {
		t.Errorf("timestamps (-want +got):\n%s", diff)
	}
}

func TestMalformedBodies(t *testing.T) {
	whole := asUnknown(t, podMetrics(2))
	for name, tc := range map[string]struct {
		body  []byte
		count func([]byte) (int, error)
	}{
		"JSON as protobuf": {[]byte(`{"kind":"PodMetricsList"}`), countProtobuf},
		"empty":            {nil, countProtobuf},
		"cut off":          {whole[:len(whole)/2], countProtobuf},
		"not compressed":   {[]byte("no JSON"), countGzip},
	} {
		t.Run(name, func(t *testing.T) {
			if n, err := tc.count(tc.body); err == nil {
				t.Errorf("%d objects and no error", n)
			}
		})
	}
}

func TestCountListed(t *testing.T) {
	list := podMetrics(3)
	list.Items[1].Name, list.Items[2].Namespace = "b-pod", "other"
	for name, tc := range map[string]struct {
		set  map[podName]bool
		want int
	}{
		"none":                  {nil, 0},
		"another namespace":     {map[podName]bool{{"other", "b-pod"}: true}, 0},
		"some":                  {map[podName]bool{{"team", "a-pod"}: true, {"other", "a-pod"}: true}, 2},
		"some that are missing": {map[podName]bool{{"team", "b-pod"}: true, {"team", "c-pod"}: true}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := countListed(asUnknown(t, list), tc.set)
			if err != nil || got != tc.want {
				t.Errorf("%d, %v, want %d", got, err, tc.want)
			}
		})
	}
}
