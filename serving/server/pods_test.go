// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

func testPod(uid types.UID, labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: uid, ResourceVersion: "7", Labels: labels,
			Annotations: map[string]string{"long": "text"}, OwnerReferences: []metav1.OwnerReference{{Name: "rs"}},
		},
	}
}

func TestPodStore(t *testing.T) {
	pod := testPod("1", map[string]string{"a": ""})
	tests := map[string]struct {
		drive      func(cache.ReflectorStore) error
		want       []string
		wantListed bool
		wantErr    bool
	}{
		"added":   {drive: func(s cache.ReflectorStore) error { return s.Add(pod) }, want: []string{"set ns/p uid=1 labels=[a]"}},
		"updated": {drive: func(s cache.ReflectorStore) error { return s.Update(testPod("2", nil)) }, want: []string{"set ns/p uid=2 labels=[]"}},
		"deleted": {drive: func(s cache.ReflectorStore) error { return s.Delete(pod) }, want: []string{"delete ns/p"}},
		"listed": {
			drive:      func(s cache.ReflectorStore) error { return s.Replace([]any{pod}, "8") },
			want:       []string{"set ns/p uid=1 labels=[a]", "keep ns/p: true", "keep ns/q: false"},
			wantListed: true,
		},
		"none listed": {
			drive: func(s cache.ReflectorStore) error { return s.Replace(nil, "8") },
			want:  []string{"keep ns/p: false", "keep ns/q: false"}, wantListed: true,
		},
		"resync":                    {drive: func(s cache.ReflectorStore) error { return s.Resync() }},
		"a foreign object":          {drive: func(s cache.ReflectorStore) error { return s.Add(testNode(nil)) }, wantErr: true},
		"a foreign object, deleted": {drive: func(s cache.ReflectorStore) error { return s.Delete(testNode(nil)) }, wantErr: true},
		"a foreign object, listed":  {drive: func(s cache.ReflectorStore) error { return s.Replace([]any{testNode(nil)}, "8") }, wantErr: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			s := newPodStore(r)
			if err := tc.drive(s); (err != nil) != tc.wantErr {
				t.Errorf("error %v, want one: %t", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, r.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if got := s.listed.Load(); got != tc.wantListed {
				t.Errorf("listed: %t, want %t", got, tc.wantListed)
			}
		})
	}
}

// TestPodStoreTrims: what a reflector collects for a list has no more than is needed, and
// pods with equal labels share them.
func TestPodStoreTrims(t *testing.T) {
	trim := newPodStore(&recorder{}).Transformer()
	trimmed := func(obj any) any {
		got, err := trim(obj)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := trimmed(testPod("1", map[string]string{"app": "x"})).(*metav1.PartialObjectMetadata)
	want := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "p", UID: "1", ResourceVersion: "7", Labels: map[string]string{"app": "x"},
	}}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("trimmed pod (-want +got):\n%s", diff)
	}
	if second := trimmed(testPod("2", map[string]string{"app": "x"})).(*metav1.PartialObjectMetadata); !sameMap(first.Labels, second.Labels) {
		t.Error("equal labels are held twice")
	}
	if got := trimmed("x"); got != "x" {
		t.Errorf("a foreign object became %v", got)
	}
}

// TestPodInformer lists and watches pods of an API server in memory.
func TestPodInformer(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	named := func(name string, labels map[string]string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: labels},
		}
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, named("a", nil), named("b", nil))
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	synctest.Test(t, func(t *testing.T) {
		store := samplestore.NewStore(clock.RealClock{}, time.Minute)
		store.Pods.SetMeta(samplestore.Key{Namespace: "ns", Name: "gone"}, &samplestore.Meta{})
		f := newPodInformer(client, store.Pods)
		if f.handled() {
			t.Error("handled before it runs")
		}
		runUntilEnd(t, f.run)
		known := func() string {
			synctest.Wait()
			text := ""
			for _, name := range []string{"a", "b", "c", "gone"} {
				if store.Pods.Known(samplestore.Key{Namespace: "ns", Name: name}) {
					text += name + " "
				}
			}
			return text
		}
		time.Sleep(time.Second)
		if got := known(); got != "a b " || !f.handled() {
			t.Errorf("known after the list: %q, handled: %t", got, f.handled())
		}
		if err := client.Tracker().Create(pods, named("c", nil), "ns"); err != nil {
			t.Fatal(err)
		}
		if err := client.Tracker().Delete(pods, "ns", "a"); err != nil {
			t.Fatal(err)
		}
		if got := known(); got != "b c " {
			t.Errorf("known after changes: %q", got)
		}
	})
}
