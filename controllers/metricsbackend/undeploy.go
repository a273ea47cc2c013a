// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// undeploy removes our own serving pods once spec.existing has taken their place:
// no APIService leads to them, and no kube-apiserver thinks so any more.
func (r *Reconciler) undeploy(ctx context.Context, s *scope) error {
	if s.deploys() || s.unmanaged || s.withoutNamespace {
		return nil
	}
	deployed, err := r.isDeployed(ctx, s)
	if err != nil {
		return err
	}
	if deployed {
		if held := r.stillNeeded(ctx, s); held != "" {
			if s.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue {
				s.mark(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonProgressing,
					"the pods that served before go on serving: "+held)
			}
			return nil
		}
		klog.FromContext(ctx).Info("Removing our serving pods, another implementation has taken their place", "service", s.target().String())
		r.tokens.Forget(s.proberAccount())
		// Not at once: someone else's finalizer may hold them.
		s.requeueWithin(progressMin)
	}
	// Before its Secret, which cert-manager would make again.
	if err := r.withdrawCertificate(ctx, s); err != nil {
		return err
	}
	return r.applier.Prune(ctx, s.backend.Name, s.serving.Namespace, []manifests.Object{manifests.GuestServiceAccount(s.serving)})
}

// isDeployed tells whether our Deployment or Service exists.
func (r *Reconciler) isDeployed(ctx context.Context, s *scope) (bool, error) {
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

// stillNeeded is why our pods may not go yet, or empty.
func (r *Reconciler) stillNeeded(ctx context.Context, s *scope) string {
	for _, name := range s.registeredNames() {
		if s.leadsToServing(s.registered[name]) {
			return name + " leads to them until the other implementation serves all that it has to"
		}
	}
	for _, name := range s.registeredNames() {
		if held := r.stillLeads(ctx, s, name); held != "" {
			return held
		}
	}
	return ""
}

// stillLeads is why it is not certain that no kube-apiserver sends requests for
// the APIService to our pods any more, although it leads elsewhere; or empty.
func (r *Reconciler) stillLeads(ctx context.Context, s *scope, name string) string {
	away := stateKey{state: pointedAway, name: name}
	lagging, unreachable, err := r.Aggregator.Lagging(ctx, name, func(service *apiregistrationv1.APIService) bool {
		return !s.leadsToServing(service)
	})
	wait, why := aggregatorSoak, "leads elsewhere in every kube-apiserver"
	switch {
	case err != nil:
		klog.FromContext(ctx).Info("Cannot ask each kube-apiserver where an APIService leads, waiting instead", "apiService", name, "soak", discoverySoak, "err", err)
		wait, why = discoverySoak, "leads elsewhere; the kube-apiservers' own addresses cannot be read"
	case len(lagging) > 0:
		s.history.streaks.Reset(away)
		return fmt.Sprintf("%s leads elsewhere, but kube-apiserver %s does not follow yet", name, strings.Join(lagging, ", "))
	case len(unreachable) > 0:
		wait, why = discoverySoak, "leads elsewhere; kube-apiserver "+strings.Join(unreachable, ", ")+" cannot be asked"
	}
	if !s.waited(away, wait) {
		return fmt.Sprintf("%s %s, this waits %s", name, why, wait)
	}
	return ""
}
