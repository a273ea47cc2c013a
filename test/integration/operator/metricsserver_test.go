// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	theirName = "kube-system/metrics-server"
	ourName   = systemNamespace + "/metrics-serving-cluster"
)

// runMetricsServer runs an implementation that serves v1beta1, with a certificate
// that nobody signed, behind the Service kube-system/metrics-server.
func runMetricsServer(t *testing.T, suite *controlPlane) {
	t.Helper()
	ip := suite.pods.add("", []string{"v1beta1"}, nil)
	t.Cleanup(func() { suite.pods.remove(ip) })
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: "metrics-server"}
	create(t, suite, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}})
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](10250), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	create(t, suite, slice)
	if err := suite.admin.Apply(t.Context(), endpointsOf(slice), client.FieldOwner("workload"), client.ForceOwnership); err != nil {
		t.Fatalf("apply the Endpoints of metrics-server: %v", err)
	}
	t.Cleanup(func() {
		meta := metav1.ObjectMeta{Namespace: slice.Namespace, Name: slice.Name}
		if err := suite.admin.Delete(context.Background(), &corev1.Endpoints{ObjectMeta: meta}); err != nil { //nolint:staticcheck // What older kube-apiservers route by.
			t.Errorf("delete the Endpoints of metrics-server: %v", err)
		}
	})
}

// create creates an object that the test's end removes.
func create(t *testing.T, suite *controlPlane, object client.Object, opts ...client.CreateOption) {
	t.Helper()
	if err := suite.admin.Create(t.Context(), object, opts...); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() {
		if err := suite.admin.Delete(context.Background(), object); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete %T %s: %v", object, object.GetName(), err)
		}
	})
}

// stockAPIService is that of metrics-server's manifests.
func stockAPIService() *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1beta1.metrics.k8s.io", Labels: map[string]string{"k8s-app": "metrics-server"}},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "metrics.k8s.io", Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 100, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server", Port: ptr.To[int32](443)},
		},
	}
}

// installMetricsServer runs it with its APIService, and waits until that answers.
func installMetricsServer(t *testing.T, suite *controlPlane) *apiregistrationv1.APIService {
	t.Helper()
	runMetricsServer(t, suite)
	stock := stockAPIService()
	create(t, suite, stock, client.FieldOwner("kubectl-client-side-apply"))
	core, err := kubernetes.NewForConfig(suite.config)
	if err != nil {
		t.Fatal(err)
	}
	outcome.Eventually(t, patience, "metrics-server's APIService is available", func(ctx context.Context) error {
		service, err := getAPIService(ctx, suite, "v1beta1")
		if err != nil {
			return err
		}
		for _, c := range service.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue {
				// What kube-apiserver answers with follows a moment later.
				return core.RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").Do(ctx).Error()
			}
		}
		return fmt.Errorf("conditions %+v", service.Status.Conditions)
	})
	return stock
}

func adopting(policy v1alpha1.AdoptionPolicy) func(*v1alpha1.MetricsBackendSpec) {
	return func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.Adoption = policy }
}

func existing(spec *v1alpha1.MetricsBackendSpec) {
	spec.Existing = &v1alpha1.ExistingSpec{
		Service: v1alpha1.ExistingService{Namespace: "kube-system", Name: "metrics-server"}, InsecureSkipTLSVerify: true,
	}
}

// waitPointsTo waits until the version's APIService points to the Service, NAMESPACE/NAME.
func waitPointsTo(t *testing.T, suite *controlPlane, version, to string) *apiregistrationv1.APIService {
	t.Helper()
	var service *apiregistrationv1.APIService
	outcome.Eventually(t, patience, version+" points to "+to, func(ctx context.Context) (err error) {
		if service, err = getAPIService(ctx, suite, version); err != nil {
			return err
		}
		if got := service.Spec.Service.Namespace + "/" + service.Spec.Service.Name; got != to {
			return fmt.Errorf("it points to %s", got)
		}
		return nil
	})
	return service
}
