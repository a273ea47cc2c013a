// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

const (
	testToken = "a-token"
	// patience ends a test that waits for what does not come.
	patience = time.Minute
)

// started returns a server with a fleet of three nodes with two pods each, and the
// configuration of a client.
func started(t *testing.T) (*fleet.Fleet, *rest.Config) {
	t.Helper()
	f, err := fleet.New(fleet.Options{Nodes: 3, PodsPerNode: 2, Namespaces: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() {
		stop()
		f.Wait()
	})
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	resources, err := Resources(f, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "settings"}, Data: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := authority.New("ca")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue("api", []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(Options{Resources: resources, Token: testToken, User: "me", Groups: []string{"readers"}, BookmarkEvery: time.Millisecond}, leaf.TLS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return f, &rest.Config{Host: s.URL(), BearerToken: testToken, TLSClientConfig: rest.TLSClientConfig{CAData: ca.PEM}, Timeout: patience}
}

// contentTypes are those of clients.
var contentTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf}

func typed(t *testing.T, config *rest.Config, contentType string) kubernetes.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.ContentType = contentType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestList(t *testing.T) {
	f, config := started(t)
	node := f.Nodes()[1]
	one := node.Pods()[0]
	for name, tc := range map[string]struct {
		namespace string
		options   metav1.ListOptions
		want      func(*fleet.Node, *fleet.Pod) bool
	}{
		"all":              {want: func(*fleet.Node, *fleet.Pod) bool { return true }},
		"a namespace":      {namespace: one.Namespace, want: func(_ *fleet.Node, p *fleet.Pod) bool { return p.Namespace == one.Namespace }},
		"by label":         {options: metav1.ListOptions{LabelSelector: "tier=" + one.Labels["tier"]}, want: func(_ *fleet.Node, p *fleet.Pod) bool { return p.Labels["tier"] == one.Labels["tier"] }},
		"by node":          {options: metav1.ListOptions{FieldSelector: "spec.nodeName=" + node.Name}, want: func(n *fleet.Node, _ *fleet.Pod) bool { return n == node }},
		"by name":          {options: metav1.ListOptions{FieldSelector: "metadata.name=" + one.Name}, want: func(_ *fleet.Node, p *fleet.Pod) bool { return p.Name == one.Name }},
		"those that run":   {options: metav1.ListOptions{FieldSelector: "status.phase=Running"}, want: func(*fleet.Node, *fleet.Pod) bool { return true }},
		"those that ended": {options: metav1.ListOptions{FieldSelector: "status.phase=Failed"}, want: func(*fleet.Node, *fleet.Pod) bool { return false }},
	} {
		var want []string
		for _, n := range f.Nodes() {
			for _, p := range n.Pods() {
				if tc.want(n, p) {
					want = append(want, p.Namespace+"/"+p.Name+" on "+n.Name)
				}
			}
		}
		slices.Sort(want)
		for _, contentType := range contentTypes {
			t.Run(name+", "+contentType, func(t *testing.T) {
				list, err := typed(t, config, contentType).CoreV1().Pods(tc.namespace).List(t.Context(), tc.options)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for i := range list.Items {
					got = append(got, list.Items[i].Namespace+"/"+list.Items[i].Name+" on "+list.Items[i].Spec.NodeName)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("pods (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Whole objects are those of the fleet, with the metadata of an API server.
func TestObjects(t *testing.T) {
	f, config := started(t)
	for _, contentType := range contentTypes {
		t.Run(contentType, func(t *testing.T) {
			client := typed(t, config, contentType)
			got, err := client.CoreV1().Nodes().Get(t.Context(), f.Nodes()[0].Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.UID == "" || got.ResourceVersion == "" || len(got.ManagedFields) != 2 || got.CreationTimestamp.IsZero() {
				t.Errorf("metadata %+v", got.ObjectMeta)
			}
			want := f.NodeObject(f.Nodes()[0])
			if diff := cmp.Diff(want.Labels, got.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.Status.DaemonEndpoints, got.Status.DaemonEndpoints); diff != "" {
				t.Errorf("port (-want +got):\n%s", diff)
			}
			settings, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "settings", metav1.GetOptions{})
			if err != nil || settings.Data["a"] != "b" {
				t.Errorf("ConfigMap %v, %v", settings, err)
			}
			if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "settings", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("a ConfigMap in another namespace: %v", err)
			}
			if _, err := client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("a resource that is not served: %v", err)
			}
		})
	}
}

// The types of events until the second bookmark, and whether the first one ends the initial
// events.
func TestWatch(t *testing.T) {
	_, config := started(t)
	for name, tc := range map[string]struct {
		options metav1.ListOptions
		want    []string
	}{
		"from a list": {
			options: metav1.ListOptions{ResourceVersion: resourceVersion, AllowWatchBookmarks: true},
			want:    []string{"BOOKMARK", "BOOKMARK"},
		},
		"with initial events": {
			options: metav1.ListOptions{SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true},
			want:    []string{"ADDED", "ADDED", "ADDED", "BOOKMARK, end of initial events", "BOOKMARK"},
		},
		"from any version": {
			options: metav1.ListOptions{AllowWatchBookmarks: true},
			want:    []string{"ADDED", "ADDED", "ADDED", "BOOKMARK", "BOOKMARK"},
		},
		"a timeout": {
			options: metav1.ListOptions{TimeoutSeconds: ptr.To[int64](1)},
			want:    []string{"ADDED", "ADDED", "ADDED"},
		},
	} {
		for _, contentType := range contentTypes {
			t.Run(name+", "+contentType, func(t *testing.T) {
				stream, err := typed(t, config, contentType).CoreV1().Nodes().Watch(t.Context(), tc.options)
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Stop()
				var got []string
				for event := range stream.ResultChan() {
					kind := string(event.Type)
					node, ok := event.Object.(*corev1.Node)
					if !ok {
						t.Fatalf("event %s of %T", kind, event.Object)
					}
					if node.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
						kind += ", end of initial events"
					}
					if node.ResourceVersion != resourceVersion || (event.Type == watch.Added && node.Status.DaemonEndpoints.KubeletEndpoint.Port == 0) {
						t.Errorf("event %s of %+v", kind, node)
					}
					if got = append(got, kind); len(got) == len(tc.want) && tc.options.TimeoutSeconds == nil {
						break
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// An informer of metadata, as both contestants have it, gets all pods.
func TestMetadataInformer(t *testing.T) {
	f, config := started(t)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	informer := metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("pods"),
		metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) { o.FieldSelector = "status.phase=Running" }).Informer()
	done := make(chan struct{})
	go func() {
		informer.RunWithContext(ctx)
		close(done)
	}()
	defer func() {
		cancel()
		<-done
	}()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer has no list")
	}
	want, got := map[string]string{}, map[string]string{}
	for _, n := range f.Nodes() {
		for _, p := range n.Pods() {
			want[p.Key().String()] = "tier " + p.Labels["tier"] + ", 2 managers"
		}
	}
	for _, o := range informer.GetStore().List() {
		pod := o.(*metav1.PartialObjectMetadata)
		got[pod.Namespace+"/"+pod.Name] = fmt.Sprintf("tier %s, %d managers", pod.Labels["tier"], len(pod.ManagedFields))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != len(want) || list.ResourceVersion != resourceVersion {
		t.Errorf("a list of metadata: %v, %v", list, err)
	}
}

func TestReviews(t *testing.T) {
	_, config := started(t)
	for _, contentType := range contentTypes {
		client := typed(t, config, contentType)
		for token, want := range map[string]string{testToken: "me", "another": ""} {
			review, err := client.AuthenticationV1().TokenReviews().Create(t.Context(),
				&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
			if err != nil || review.Status.User.Username != want || review.Status.Authenticated != (want != "") {
				t.Errorf("%s: token %s is of %v, %v", contentType, token, review, err)
			}
		}
		for group, want := range map[string]bool{"readers": true, "system:masters": true, "others": false} {
			review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
				&authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", Groups: []string{group}}}, metav1.CreateOptions{})
			if err != nil || review.Status.Allowed != want {
				t.Errorf("%s: group %s is authorized: %v, %v", contentType, group, review, err)
			}
		}
	}
	config.BearerToken = "another"
	if _, err := typed(t, config, runtime.ContentTypeJSON).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a list with another token: %v", err)
	}
}
