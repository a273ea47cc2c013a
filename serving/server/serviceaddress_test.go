// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// TestServiceAddress: a Service has the address that the aggregator would use, or the failure says why there is none.
func TestServiceAddress(t *testing.T) {
	ports := []corev1.ServicePort{{Port: 80}, {Port: 443, NodePort: 30443}}
	for name, test := range map[string]struct {
		spec *corev1.ServiceSpec
		err  error
		port int32
		want string
	}{
		"a cluster IP":       {&corev1.ServiceSpec{ClusterIP: "10.0.0.7", Ports: ports}, nil, 443, "10.0.0.7:443"},
		"IPv6":               {&corev1.ServiceSpec{ClusterIP: "fd00::7", Ports: ports}, nil, 443, "[fd00::7]:443"},
		"a node port":        {&corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.0.0.7", Ports: ports}, nil, 80, "10.0.0.7:80"},
		"an external name":   {&corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "keda.example"}, nil, 6443, "keda.example:6443"},
		"headless":           {&corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: ports}, nil, 443, "ServiceMissing: the Service keda/keda-metrics has no cluster IP: name one that has, as kube-apiserver needs it for an APIService, too"},
		"no cluster IP":      {&corev1.ServiceSpec{Ports: ports}, nil, 443, "ServiceMissing: the Service keda/keda-metrics has no cluster IP: name one that has, as kube-apiserver needs it for an APIService, too"},
		"another port":       {&corev1.ServiceSpec{ClusterIP: "10.0.0.7", Ports: ports}, nil, 30443, "ServiceMissing: the Service keda/keda-metrics has no port 30443: correct service.port"},
		"no Service":         {nil, nil, 443, "ServiceMissing: the Service keda/keda-metrics does not exist: install the implementation, or correct service"},
		"no answer about it": {nil, errors.New("connection refused"), 443, "ConnectionFailed: the Service keda/keda-metrics cannot be read for its address: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if test.spec != nil {
				objects = append(objects, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "keda", Name: "keda-metrics"}, Spec: *test.spec})
			}
			client := fake.NewClientset(objects...)
			client.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) { return test.err != nil, nil, test.err })
			got, err := serviceAddress(client.CoreV1())(t.Context(), v1alpha1.ExistingService{Namespace: "keda", Name: "keda-metrics", Port: ptr.To(test.port)})
			if f, ok := errors.AsType[*query.Failure](err); ok {
				got = string(f.Reason) + ": " + f.Message
			}
			if got != test.want {
				t.Errorf("got %s (%v), want %s", got, err, test.want)
			}
		})
	}
}

// TestServiceAddresses: an address is read once for many connections, and again after a while, or if there was none.
func TestServiceAddresses(t *testing.T) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "keda", Name: "keda-metrics"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.7", Ports: []corev1.ServicePort{{Port: 443}}}}
	client, now := fake.NewClientset(), clocktesting.NewFakeClock(time.Unix(1700000000, 0))
	address := serviceAddresses(client.CoreV1(), now)
	for i, step := range []struct {
		after time.Duration
		clusterIP,
		want string
		reads int
	}{
		{0, "", "", 1},
		{0, "10.0.0.7", "10.0.0.7:443", 1},
		{addressTime - time.Second, "10.0.0.8", "10.0.0.7:443", 0},
		{2 * time.Second, "10.0.0.8", "10.0.0.8:443", 1},
	} {
		now.Step(step.after)
		_ = client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("services"), "keda", "keda-metrics")
		if service.Spec.ClusterIP = step.clusterIP; step.clusterIP != "" {
			if err := client.Tracker().Add(service.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
		client.ClearActions()
		for range 3 {
			got, err := address(t.Context(), v1alpha1.ExistingService{Namespace: "keda", Name: "keda-metrics", Port: ptr.To[int32](443)})
			if got != step.want || (err == nil) != (step.want != "") {
				t.Errorf("step %d: %q, %v", i, got, err)
			}
			if err != nil {
				break
			}
		}
		if reads := len(client.Actions()); reads != step.reads {
			t.Errorf("step %d: read %d times", i, reads)
		}
	}
}
