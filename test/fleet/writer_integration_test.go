// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// The writer against a real kube-apiserver and etcd, found as envtest finds them:
// KUBEBUILDER_ASSETS names the folder with both binaries.
package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func newCluster(t *testing.T) kubernetes.Interface {
	t.Helper()
	// The defaults of 20 seconds are short on a machine that compiles meanwhile.
	environment := &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	client, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// bound is each of the fleet's pods in the API server: "node, phase, restarts".
func bound(t *testing.T, client kubernetes.Interface, f *Fleet) map[string]string {
	t.Helper()
	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{LabelSelector: f.Selector()})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range pods.Items {
		s := summarized(&p)
		got[p.Namespace+"/"+p.Name] = fmt.Sprintf("%s, %s, %d", s.node, p.Status.Phase, s.restarts)
	}
	return got
}

// wanted is the same as the fleet has it.
func wanted(f *Fleet) map[string]string {
	want := map[string]string{}
	for _, n := range f.Nodes() {
		for _, p := range n.Pods() {
			restarts := 0
			for _, c := range p.Containers {
				restarts += c.Restarts
			}
			want[p.Key().String()] = fmt.Sprintf("%s, Running, %d", n.Name, restarts)
		}
	}
	return want
}

func endpoints(t *testing.T, client kubernetes.Interface, f *Fleet) map[string]string {
	t.Helper()
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: f.Selector()})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range nodes.Items {
		got[n.Name] = fmt.Sprintf("%s:%d", n.Status.Addresses[0].Address, n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	}
	return got
}

func TestWriter(t *testing.T) {
	client := newCluster(t)
	ctx := t.Context()
	same := func(what string, f *Fleet) {
		t.Helper()
		if diff := cmp.Diff(wanted(f), bound(t, client, f)); diff != "" {
			t.Errorf("%s: pods (-fleet +API server):\n%s", what, diff)
		}
		want := map[string]string{}
		for _, n := range f.Nodes() {
			want[n.Name] = n.Address().String()
		}
		if diff := cmp.Diff(want, endpoints(t, client, f)); diff != "" {
			t.Errorf("%s: nodes (-fleet +API server):\n%s", what, diff)
		}
	}
	sync := func(what string, f *Fleet) *Writer {
		t.Helper()
		w := NewWriter(client, f, 8)
		if err := w.Sync(ctx); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		same(what, f)
		return w
	}

	f, _ := newFleet(t, Options{Nodes: 6, PodsPerNode: 4, Namespaces: 3})
	start(t, f)
	w := sync("the first time", f)
	if nodes, pods := w.Progress(); nodes != 6 || pods != 24 {
		t.Errorf("progress %d nodes, %d pods", nodes, pods)
	}
	unchanged := func() string {
		t.Helper()
		list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: f.Selector()})
		if err != nil {
			t.Fatal(err)
		}
		var versions strings.Builder
		for _, p := range list.Items {
			fmt.Fprintln(&versions, p.Name, p.ResourceVersion)
		}
		return versions.String()
	}
	before := unchanged()
	sync("again", f)
	if diff := cmp.Diff(before, unchanged()); diff != "" {
		t.Errorf("a second Sync wrote:\n%s", diff)
	}

	changes, err := f.Churn(Churn{Restart: 3, Move: 3, Replace: 3})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice does not hurt
		if err := w.Apply(ctx, changes); err != nil {
			t.Fatal(err)
		}
		same("after churn", f)
	}

	// A run that was killed half way: some pods are missing, one has no status.
	var maimed []string
	for i, p := range f.Nodes()[0].Pods() {
		if err := w.deletePod(ctx, p.Key(), nil); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := client.CoreV1().Pods(p.Namespace).Create(ctx, f.PodObject(p, f.Nodes()[0]), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		maimed = append(maimed, p.Name)
	}
	sync("after the loss of "+strings.Join(maimed, ", "), f)

	// The next run has other ports, other pods and fewer nodes.
	next, _ := newFleet(t, Options{Nodes: 4, PodsPerNode: 5, Namespaces: 3, Seed: 9})
	start(t, next)
	w = sync("another run", next)

	if err := w.Cleanup(ctx); err != nil {
		t.Fatal(err)
	}
	if left := len(bound(t, client, next)) + len(endpoints(t, client, next)); left != 0 {
		t.Errorf("%d objects are left", left)
	}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: next.Selector()})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range namespaces.Items { // no namespace controller runs here
		if n.DeletionTimestamp == nil {
			t.Errorf("namespace %s is not deleted", n.Name)
		}
	}
	if err := w.Cleanup(ctx); err != nil {
		t.Errorf("a second cleanup: %v", err)
	}
}

func TestWriterLeavesTheObjectsOfOthersAlone(t *testing.T) {
	client := newCluster(t)
	ctx := t.Context()
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a-node-0001"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b-00"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a": "creating node: a-node-0001 exists without the label fleet.metricsbackend.io/name=a",
		"b": "creating namespace b-00: b-00 exists without the label fleet.metricsbackend.io/name=b",
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFleet(t, Options{Name: name, Nodes: 3, PodsPerNode: 1, Namespaces: 1})
			start(t, f)
			w := NewWriter(client, f, 0)
			if err := w.Sync(ctx); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q in it", err, want)
			}
			if err := w.Cleanup(context.WithoutCancel(ctx)); err != nil {
				t.Fatal(err)
			}
		})
	}
	if _, err := client.CoreV1().Nodes().Get(ctx, "a-node-0001", metav1.GetOptions{}); err != nil {
		t.Errorf("the other's node: %v", err)
	}
	if namespace, err := client.CoreV1().Namespaces().Get(ctx, "b-00", metav1.GetOptions{}); err != nil || namespace.DeletionTimestamp != nil {
		t.Errorf("the other's namespace: %v, %v", namespace.DeletionTimestamp, err)
	}
}
