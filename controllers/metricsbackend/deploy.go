// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// deploy applies all objects that serving pods need, the Deployment last, and deletes
// those that the spec no longer requires.
func (r *Reconciler) deploy(ctx context.Context, s *reconcileState) error {
	if !s.deploys() {
		return nil // undeploy removes what was deployed before
	}
	account, err := r.applier.Apply(ctx, s.backend.Name, manifests.ServiceAccount(s.serving))
	if err != nil {
		return err
	}
	s.serving.AccountUID = account.UID
	if s.spec.Serving.NetworkPolicy == v1alpha1.NetworkPolicyRestricted {
		// Without its port, the NetworkPolicy would cut serving off from kube-apiserver.
		if s.serving.APIServerPorts, err = r.Aggregator.Ports(ctx); err != nil {
			return fmt.Errorf("read the ports of kube-apiservers for the NetworkPolicy: %w", err)
		}
	}
	var before []client.Object // the cache has only their metadata
	for name := range s.versions.kept {
		if gv, _ := manifests.VersionOf(name); slices.Contains(s.backend.RetainedGroups(), gv.Group) {
			// Pods serve the group by the section before.
			before = []client.Object{&s.serving.RoleBefore, &s.serving.ClusterRoleBefore, &s.serving.PolicyBefore}
			s.serving.CustomMetrics = s.serving.CustomMetrics || gv.Group == manifests.CustomMetricsGroup
		}
	}
	for _, object := range before {
		key := client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.Name()}
		if object == &s.serving.ClusterRoleBefore {
			key.Namespace = "" // it has none
		}
		if err := r.APIReader.Get(ctx, key, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read what serving pods may do: %w", err)
		}
	}
	objects := manifests.All(s.serving)
	for _, object := range objects {
		applied, err := r.applier.Apply(ctx, s.backend.Name, object)
		if ptr.Deref(object.GetKind(), "") == quotaKind.Kind && apierrors.IsForbidden(err) {
			// For example where a quota limits the number of quotas. Most clusters do not need
			// it; where one does, ServingReady says that pods are refused, and what to do.
			klog.FromContext(ctx).Info("Cannot apply the ResourceQuota for the priority class of serving pods, continuing without", "err", err)
			continue
		}
		if err != nil {
			return err
		}
		// The Deployment is the last one.
		s.rollout.appliedGeneration = applied.Generation
		if applied.ChangedBy != "" {
			s.rollout.changed = fmt.Sprintf("; field manager %q keeps changing %s %s, which is corrected only every few minutes: stop that",
				applied.ChangedBy, *object.GetKind(), inventory.Path(client.ObjectKey{Namespace: ptr.Deref(object.GetNamespace(), ""), Name: *object.GetName()}))
		}
	}
	admission, err := r.admission(ctx, s)
	if err != nil {
		return err
	}
	keep := slices.Concat(objects, admission, s.certificate.Secrets(), []manifests.Object{manifests.GuestServiceAccount(s.serving)})
	return r.applier.Prune(ctx, s.backend.Name, s.serving.Namespace, keep)
}

// wantsQuota decides whether the namespace gets our ResourceQuota: for a priority class that
// clusters such as GKE limit, unless a quota of others covers the class. Ours stays once it
// exists, since pods of the former revision may need it although the class was changed, and
// two programs that each give way to the other's quota would never stop.
func (r *Reconciler) wantsQuota(ctx context.Context, s *reconcileState) (bool, error) {
	var quotas corev1.ResourceQuotaList
	if err := r.APIReader.List(ctx, &quotas, client.InNamespace(s.serving.Namespace)); err != nil {
		return false, fmt.Errorf("list ResourceQuotas of namespace %s: %w", s.serving.Namespace, err)
	}
	wanted := s.serving.MayNeedQuota()
	for i := range quotas.Items {
		quota := &quotas.Items[i]
		switch owner := quota.Labels[v1alpha1.LabelBackend]; {
		case owner == s.backend.Name && quota.Name == s.serving.Name():
			return true, nil
		case owner != "":
			// Deleted with another MetricsBackend, which does not count on ours either.
		case quota.DeletionTimestamp == nil && s.serving.CoveredBy(quota):
			wanted = false
		}
	}
	return wanted, nil
}

// undeploy deletes our serving pods once spec.existing has replaced them: no APIService
// points to them, and no kube-apiserver still has one that does.
func (r *Reconciler) undeploy(ctx context.Context, s *reconcileState) error {
	if s.deploys() || !s.namespace.usable() {
		return nil
	}
	deployed, err := r.isDeployed(ctx, s)
	if err != nil {
		return err
	}
	if deployed {
		if why := r.stillNeeded(ctx, s); why != "" {
			if s.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue {
				s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonProgressing,
					"the pods that served before go on serving: "+why)
			}
			return nil
		}
		klog.FromContext(ctx).Info("Removing our serving pods, another implementation has taken their place", "service", s.target().String())
		r.tokens.Forget(s.proberAccount())
		// A finalizer may keep objects for a while.
		s.requeueWithin(progressMin)
	}
	// Before its Secret, which cert-manager would create again.
	kept, err := r.certificateReconciler.DeleteCertManagerCertificate(ctx, s.serving, s.history.certificates)
	if err != nil {
		return err
	}
	return r.applier.Prune(ctx, s.backend.Name, s.serving.Namespace, append(kept, manifests.GuestServiceAccount(s.serving)))
}

// isDeployed reports whether our Deployment or Service exists.
func (r *Reconciler) isDeployed(ctx context.Context, s *reconcileState) (bool, error) {
	key := client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.Name()}
	for _, kind := range []client.Object{
		inventory.Prototype(appsv1.SchemeGroupVersion.WithKind("Deployment")),
		inventory.Prototype(corev1.SchemeGroupVersion.WithKind("Service")),
	} {
		err := r.Client.Get(ctx, key, kind)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("get our %T %s: %w", kind, key, err)
		}
		if !apierrors.IsNotFound(err) && kind.GetLabels()[v1alpha1.LabelBackend] == s.backend.Name {
			return true, nil
		}
	}
	return false, nil
}

// stillNeeded returns why our pods must stay for now, or "".
func (r *Reconciler) stillNeeded(ctx context.Context, s *reconcileState) string {
	if services := s.servingAPIServices(); len(services) > 0 {
		return services[0].Name + " points to them until the other implementation serves all that it has to"
	}
	for _, name := range s.registeredNames() {
		if why := r.stillRouted(ctx, s, name); why != "" {
			return why
		}
	}
	return ""
}

// stillRouted returns why some kube-apiserver may still send requests for the APIService
// to our pods, although it points elsewhere, or "".
func (r *Reconciler) stillRouted(ctx context.Context, s *reconcileState, name string) string {
	away := stateKey{state: pointedAway, name: name}
	lagging, unreachable, err := r.Aggregator.Lagging(ctx, name, func(service *apiregistrationv1.APIService) bool {
		return !s.identity().PointsToPods(service)
	})
	wait, why := aggregator.RoutingDelay, "points elsewhere in every kube-apiserver"
	switch {
	case err != nil:
		klog.FromContext(ctx).Info("Cannot ask each kube-apiserver where an APIService points to, waiting instead", "apiService", name, "delay", aggregator.DiscoveryDelay, "err", err)
		wait, why = aggregator.DiscoveryDelay, "points elsewhere; the kube-apiservers' own addresses cannot be read"
	case len(lagging) > 0:
		s.history.streaks.Reset(away)
		return fmt.Sprintf("%s points elsewhere, but kube-apiserver %s does not follow yet", name, strings.Join(lagging, ", "))
	case len(unreachable) > 0:
		wait, why = aggregator.DiscoveryDelay, "points elsewhere; kube-apiserver "+strings.Join(unreachable, ", ")+" cannot be asked"
	}
	if !s.waited(away, wait) {
		return fmt.Sprintf("%s %s, this waits %s", name, why, wait)
	}
	return ""
}

// admission applies the policy that checks ExternalMetricsPolicies when autoscalers are
// written, unless another implementation serves external metrics or the CRD is missing.
// It returns the objects that the prune must keep.
//
// All MetricsBackends have the same policy, so that of another one is as good: it may be
// one that removes its policy only after this one has taken external metrics over.
func (r *Reconciler) admission(ctx context.Context, s *reconcileState) ([]manifests.Object, error) {
	if s.spec.ExternalMetrics == nil || slices.ContainsFunc(s.excluded(), isExternal) || s.othersServeExternal() {
		return nil, nil
	}
	exists, err := r.policiesExist(ctx)
	if err != nil || !exists {
		return nil, err
	}
	// The policy first: with a binding alone, every write of an autoscaler fails.
	objects := []manifests.Object{manifests.AdmissionPolicy(s.serving), manifests.AdmissionPolicyBinding(s.serving)}
	for _, object := range objects {
		_, err := r.applier.Apply(ctx, s.backend.Name, object)
		var notOwned *inventory.NotOwnedError
		switch {
		case errors.As(err, &notOwned) && notOwned.Backend != "":
			return objects, nil
		case err != nil:
			return nil, err
		}
	}
	return objects, nil
}

// othersServeExternal reports whether an implementation that is no MetricsBackend serves
// external metrics. It applies no ExternalMetricsPolicies.
func (s *reconcileState) othersServeExternal() bool {
	return slices.ContainsFunc(s.versions.desired, func(gv schema.GroupVersion) bool {
		other := s.others[apiServiceName(gv)]
		return isExternal(gv) && other != nil && other.Labels[v1alpha1.LabelBackend] == ""
	})
}

func isExternal(gv schema.GroupVersion) bool { return gv.Group == manifests.ExternalMetricsGroup }

// policiesExist reports whether the CRD of ExternalMetricsPolicies exists. kube-apiserver
// rejects a policy whose parameter kind it does not know.
func (r *Reconciler) policiesExist(ctx context.Context) (bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ExternalMetricsPolicyList"))
	err := r.APIReader.List(ctx, list, client.Limit(1))
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for ExternalMetricsPolicies: %w", err)
	}
	return true, nil
}
