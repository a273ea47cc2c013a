// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// The writer against a real kube-apiserver and etcd, found as envtest finds them:
// KUBEBUILDER_ASSETS names the folder with both binaries.
package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func TestWriter(t *testing.T) {
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
	f, _ := newFleet(t, Options{Nodes: 6, PodsPerNode: 4, Namespaces: 3})
	start(t, f)
	if err := NewWriter(client, f, 8).Sync(t.Context()); err != nil {
		t.Fatal(err)
	}

	want, got := map[string]string{}, map[string]string{}
	for _, n := range f.Nodes() {
		want[n.Name] = n.address.String()
		for _, p := range n.Pods() {
			want[p.Key().String()] = n.Name + ", Running"
		}
	}
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		got[n.Name] = fmt.Sprintf("%s:%d", n.Status.Addresses[0].Address, n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	}
	pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		got[p.Namespace+"/"+p.Name] = fmt.Sprintf("%s, %s", p.Spec.NodeName, p.Status.Phase)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes and pods (-fleet +API server):\n%s", diff)
	}
	if err := NewWriter(client, f, 0).Sync(t.Context()); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second time: %v", err)
	}
}
