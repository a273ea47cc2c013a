// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// Name is the controller's name in logs, metrics and events.
const Name = "metricsbackend"

const (
	// retryMin and retryMax bound the backoff after a failed attempt.
	retryMin = 200 * time.Millisecond
	retryMax = 30 * time.Second
	// workers keep a backend from waiting for slow pods or kube-apiservers of another
	// one.
	workers = 4
)

var (
	replicaSetKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	namespaceKind  = corev1.SchemeGroupVersion.WithKind("Namespace")
	quotaKind      = corev1.SchemeGroupVersion.WithKind("ResourceQuota")
	apiServiceKind = apiregistrationv1.SchemeGroupVersion.WithKind("APIService")
)

// CacheOptions limit the cache to objects of MetricsBackends, by label and in the
// namespaces that the operator manages.
func CacheOptions(namespaces []string) cache.Options {
	owned, _ := labels.Parse(v1alpha1.LabelBackend) // that it exists
	managed := map[string]cache.Config{}
	for _, namespace := range namespaces {
		managed[namespace] = cache.Config{}
	}
	withSystem := maps.Clone(managed)
	withSystem[metav1.NamespaceSystem] = cache.Config{}
	byObject := map[client.Object]cache.ByObject{
		&corev1.Pod{}:                       {Label: owned, Namespaces: managed},
		inventory.Prototype(replicaSetKind): {Label: owned, Namespaces: managed},
		inventory.Prototype(apiServiceKind): {Label: owned},
		inventory.Prototype(namespaceKind):  {},
		&v1alpha1.MetricsBackend{}:          {},
		&v1alpha1.ExternalMetricsPolicy{}:   {},
	}
	for _, kind := range inventory.Watched() {
		options := cache.ByObject{Label: owned}
		switch {
		case kind.OutsideNamespace:
			options.Namespaces = withSystem
		case !kind.ClusterScoped:
			options.Namespaces = managed
		}
		byObject[inventory.Prototype(kind.GroupVersionKind)] = options
	}
	return cache.Options{
		ByObject:         byObject,
		DefaultTransform: cache.TransformStripManagedFields(),
		// A kind without a watch is a bug, and not to be watched in the whole cluster.
		ReaderFailOnMissingInformer: true,
	}
}

// SetupWithManager starts the controller with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// The options of an apply are encoded by group; kinds are not needed.
	metav1.AddToGroupVersion(mgr.GetScheme(), manifests.CertificateKind.GroupVersion())
	b := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		WithOptions(controllerOptions()).
		// Our own status writes change nothing.
		For(&v1alpha1.MetricsBackend{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{},
			predicate.AnnotationChangedPredicate{}, installationChanged()))).
		// A conflict ends when the other backend changes or is deleted.
		Watches(&v1alpha1.MetricsBackend{}, r.backendsHandler(anyBackend),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(inventory.Prototype(namespaceKind), r.backendsHandler(r.uses),
			builder.WithPredicates(namespaceLifecycle())).
		Watches(&corev1.Pod{}, ownedHandler()).
		Watches(inventory.Prototype(replicaSetKind), ownedHandler(), builder.WithPredicates(createdOrDeleted())).
		// APIServices have no generation, and their conditions are needed.
		// All backends: one may wait for an APIService that another releases.
		Watches(inventory.Prototype(apiServiceKind), r.backendsHandler(anyBackend))
	for _, kind := range inventory.Watched() {
		b = b.Watches(inventory.Prototype(kind.GroupVersionKind), ownedHandler())
	}
	if err := b.Complete(r); err != nil {
		return err
	}
	return mgr.Add(r.adoptionChecker)
}

func controllerOptions() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax),
	}
}

// ownedHandler maps an object to the backend that its label names.
func ownedHandler() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return requestsFor(object.GetLabels()[v1alpha1.LabelBackend])
	})
}

// backendsHandler maps an object to the backends that match; the queue drops duplicates.
func (r *Reconciler) backendsHandler(match func(client.Object, *v1alpha1.MetricsBackend) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		var list v1alpha1.MetricsBackendList
		if err := r.Client.List(ctx, &list); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot list MetricsBackends to look at after an event")
			return nil
		}
		var requests []reconcile.Request
		for i := range list.Items {
			if match(object, &list.Items[i]) {
				requests = append(requests, requestsFor(list.Items[i].Name)...)
			}
		}
		return requests
	})
}

func anyBackend(client.Object, *v1alpha1.MetricsBackend) bool { return true }

// uses reports whether a backend uses the namespace.
func (r *Reconciler) uses(namespace client.Object, backend *v1alpha1.MetricsBackend) bool {
	existing := ptr.Deref(backend.Spec.Existing, v1alpha1.ExistingSpec{}).Service.Namespace
	used := []string{backend.Status.Installation.Namespace, cmp.Or(backend.Spec.Serving.Namespace, r.Namespace), existing}
	return slices.Contains(used, namespace.GetName())
}

func requestsFor(backend string) []reconcile.Request {
	if backend == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: backend}}}
}

// installationChanged passes updates after which another operator may manage the backend,
// or one is to be reported.
func installationChanged() predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.MetricsBackend)
		after, isBackend := e.ObjectNew.(*v1alpha1.MetricsBackend)
		return ok && isBackend && before.Status.Installation != after.Status.Installation
	}}
}

// createdOrDeleted passes creations and deletions.
func createdOrDeleted() predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// namespaceLifecycle passes creations, deletions and their start. All namespaces of the
// cluster are watched.
func namespaceLifecycle() predicate.Funcs {
	p := createdOrDeleted()
	p.UpdateFunc = func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}
	return p
}
