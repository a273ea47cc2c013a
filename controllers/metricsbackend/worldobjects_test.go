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

// What tests and other components of the cluster do to objects must succeed.

func (w *world) get(key client.ObjectKey, o client.Object) {
	w.t.Helper()
	w.must(w.raw.Get(context.Background(), key, o))
}

func (w *world) list(l client.ObjectList, opts ...client.ListOption) {
	w.t.Helper()
	w.must(w.raw.List(context.Background(), l, opts...))
}

func (w *world) create(o client.Object, opts ...client.CreateOption) {
	w.t.Helper()
	w.must(w.raw.Create(context.Background(), o, opts...))
}

func (w *world) update(o client.Object, opts ...client.UpdateOption) {
	w.t.Helper()
	w.must(w.raw.Update(context.Background(), o, opts...))
}

func (w *world) updateStatus(o client.Object) {
	w.t.Helper()
	w.must(w.raw.Status().Update(context.Background(), o))
}

func (w *world) delete(o client.Object) {
	w.t.Helper()
	w.must(w.raw.Delete(context.Background(), o))
}

// editAPIService changes the version's APIService as somebody else.
func (w *world) editAPIService(gv schema.GroupVersion, change func(*apiregistrationv1.APIService)) {
	w.t.Helper()
	service := w.apiService(gv)
	change(service)
	w.update(service, client.FieldOwner("kubectl-edit"))
}

// saysAvailable has kube-apiserver say of an APIService whether it is available.
func (w *world) saysAvailable(service *apiregistrationv1.APIService, status apiregistrationv1.ConditionStatus, reason string) {
	w.t.Helper()
	message := "all checks passed"
	if status != apiregistrationv1.ConditionTrue {
		message = "failing or missing response from https://10.0.0.1:10443: dial tcp 10.9.9.9:" + temporaryPort + "->"
	}
	service.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type: apiregistrationv1.Available, Status: status, Reason: reason, Message: message,
	}}
	w.updateStatus(service)
}

// endNamespace begins the deletion of the namespace of the pods, which lasts.
func (w *world) endNamespace() {
	w.t.Helper()
	namespace := &corev1.Namespace{}
	w.get(client.ObjectKey{Name: systemNamespace}, namespace)
	namespace.Finalizers = []string{"kubernetes"}
	w.update(namespace)
	w.delete(namespace)
}
