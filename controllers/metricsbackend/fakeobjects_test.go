// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Changes of objects by tests and other components must succeed.

func (fc *fakeCluster) get(key client.ObjectKey, o client.Object) {
	fc.t.Helper()
	fc.must(fc.raw.Get(context.Background(), key, o))
}

func (fc *fakeCluster) list(l client.ObjectList, opts ...client.ListOption) {
	fc.t.Helper()
	fc.must(fc.raw.List(context.Background(), l, opts...))
}

func (fc *fakeCluster) create(o client.Object, opts ...client.CreateOption) {
	fc.t.Helper()
	fc.must(fc.raw.Create(context.Background(), o, opts...))
}

func (fc *fakeCluster) update(o client.Object, opts ...client.UpdateOption) {
	fc.t.Helper()
	fc.must(fc.raw.Update(context.Background(), o, opts...))
}

func (fc *fakeCluster) updateStatus(o client.Object) {
	fc.t.Helper()
	fc.must(fc.raw.Status().Update(context.Background(), o))
}

func (fc *fakeCluster) delete(o client.Object) {
	fc.t.Helper()
	fc.must(fc.raw.Delete(context.Background(), o))
}

// editAPIService changes the version's APIService as another manager.
func (fc *fakeCluster) editAPIService(gv schema.GroupVersion, change func(*apiregistrationv1.APIService)) {
	fc.t.Helper()
	service := fc.apiService(gv)
	change(service)
	fc.update(service, client.FieldOwner("kubectl-edit"))
}

// setAvailable sets the aggregator's condition of an APIService.
func (fc *fakeCluster) setAvailable(service *apiregistrationv1.APIService, status apiregistrationv1.ConditionStatus, reason string) {
	fc.t.Helper()
	message := "all checks passed"
	if status != apiregistrationv1.ConditionTrue {
		message = "failing or missing response from https://10.0.0.1:10443: dial tcp 10.9.9.9:" + temporaryPort + "->"
	}
	service.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type: apiregistrationv1.Available, Status: status, Reason: reason, Message: message,
	}}
	fc.updateStatus(service)
}

// deleteNamespace starts the deletion of the pods' namespace, which does not finish.
func (fc *fakeCluster) deleteNamespace() {
	fc.t.Helper()
	namespace := &corev1.Namespace{}
	fc.get(client.ObjectKey{Name: systemNamespace}, namespace)
	namespace.Finalizers = []string{"kubernetes"}
	fc.update(namespace)
	fc.delete(namespace)
}
