// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// handBack gives an APIService that was taken over back to the Service it led to
// before, if that still answers for its version, in one write. It tells whether it
// did, or what it waits for; otherwise the APIService is to be deleted.
func (r *Reconciler) handBack(ctx context.Context, s *scope, service *apiregistrationv1.APIService) (handed bool, waits string, err error) {
	gv, ok := versionOf(service.Name)
	if _, taken := service.Annotations[v1alpha1.AnnotationPreviousOwner]; !taken || !ok {
		return false, "", nil
	}
	impossible := func(err error) (bool, string, error) {
		klog.FromContext(ctx).Error(err, "Cannot hand an APIService back, deleting it", "apiService", service.Name)
		r.Events.Eventf(s.backend, service, corev1.EventTypeWarning, "HandBackImpossible", "Retire", "%s",
			text.Truncate(fmt.Sprintf("APIService %s is deleted, not handed back: %v", service.Name, err), maxNote))
		return false, "", nil
	}
	previous, err := previousOwner(service)
	if err != nil {
		return impossible(err)
	}
	target := previous.target()
	if target.Namespace == s.serving.Namespace && target.Name == s.serving.Name() {
		// Restored, it would lead to the pods that are to go.
		return impossible(fmt.Errorf("annotation %s names Service %s, which is this MetricsBackend's own", v1alpha1.AnnotationPreviousOwner, target))
	}
	why, passing, err := r.silent(ctx, s, target, gv)
	switch failing := (stateKey{state: previousOwnerFailing, name: service.Name}); {
	case err != nil:
		return false, "", err
	case why == "":
		s.history.streaks.Reset(failing)
	case passing && s.history.streaks.Observe(failing, true).Elapsed < previousOwnerGrace:
		return false, fmt.Sprintf("this waits up to %s for Service %s, to which it is handed back: %s", previousOwnerGrace, target, why), nil
	default:
		s.history.streaks.Reset(failing)
		klog.FromContext(ctx).Info("Not handing an APIService back, deleting it", "apiService", service.Name, "service", target.String(), "why", why)
		r.Events.Eventf(s.backend, service, corev1.EventTypeWarning, "PreviousOwnerSilent", "Retire", "%s",
			text.Truncate(fmt.Sprintf("APIService %s is deleted, not handed back to Service %s: %s", service.Name, target, why), maxNote))
		return false, "", nil
	}
	previous.restore(service)
	klog.FromContext(ctx).Info("Handing an APIService back", "apiService", service.Name, "service", target.String())
	// With the resourceVersion that was read: nobody's change in between is lost.
	err = r.Client.Update(ctx, service, client.FieldOwner(v1alpha1.FieldOwner))
	if apierrors.IsForbidden(err) {
		// A version that only another release of the operator knows, and may write. Any
		// may be deleted; one that stays would hold up everything else for ever.
		return impossible(err)
	}
	if err != nil {
		return false, "", fmt.Errorf("hand APIService %s back to Service %s: %w", service.Name, target, err)
	}
	r.Events.Eventf(s.backend, service, corev1.EventTypeNormal, "VersionHandedBack", "Retire", "%s",
		fmt.Sprintf("handed APIService %s back to Service %s", service.Name, target))
	return true, "", nil
}

// silent is why the target does not answer for the version, or empty; passing tells
// that it may soon.
func (r *Reconciler) silent(ctx context.Context, s *scope, target manifests.Target, gv schema.GroupVersion) (why string, passing bool, err error) {
	found, err := r.readImplementation(ctx, target)
	switch {
	case err != nil:
		return "", false, err
	case found.missing:
		return found.why, false, nil
	case len(found.endpoints) == 0:
		// Who ends with its namespace cannot wait.
		return "it has no ready endpoint", !s.withoutNamespace, nil
	}
	account, token, err := r.guestToken(ctx, s)
	switch {
	case err != nil && (s.withoutNamespace || s.unmanaged):
		// Without an account nobody can be asked. A ready endpoint is all that can be
		// known then; it served this very version before.
		klog.FromContext(ctx).Info("Cannot ask the previous owner, no account can be made; its endpoints are ready", "service", target.String(), "err", err)
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	r.ask(ctx, found, account, token, []schema.GroupVersion{gv})
	lacking, failed := found.lacking(gv), found.failed()
	switch {
	case len(lacking) > 0:
		return fmt.Sprintf("endpoint %s does not serve it", lacking[0]), false, nil
	case failed != nil && !found.someServe(gv) && s.withoutNamespace && found.refusesAccount():
		// A token from before the account went is worth nothing: as without an account.
		return "", false, nil
	case failed != nil && !found.someServe(gv):
		return fmt.Sprintf("endpoint %s cannot be asked: %v", failed.address, failed.err), !s.withoutNamespace, nil
	}
	// One that cannot be asked now is no reason to take the API from all.
	return "", false, nil
}

// owned is an APIService's state before the takeover.
type owned v1alpha1.PreviousOwner

// ownedBefore is what the APIService is now, and what our labels replace.
func ownedBefore(service *apiregistrationv1.APIService, ours map[string]string) owned {
	before := owned{
		Service: v1alpha1.ExistingService{
			Namespace: service.Spec.Service.Namespace, Name: service.Spec.Service.Name,
			Port: ptr.To(ptr.Deref(service.Spec.Service.Port, manifests.ServicePort)),
		},
		CABundle:              service.Spec.CABundle,
		InsecureSkipTLSVerify: service.Spec.InsecureSkipTLSVerify,
		GroupPriorityMinimum:  service.Spec.GroupPriorityMinimum,
		VersionPriority:       service.Spec.VersionPriority,
		Labels:                map[string]*string{},
	}
	for key := range ours {
		before.Labels[key] = nil
		if value, ok := service.Labels[key]; ok {
			before.Labels[key] = &value
		}
	}
	return before
}

// previousOwner reads the annotation. What is in it may be anybody's words.
func previousOwner(service *apiregistrationv1.APIService) (*owned, error) {
	var before owned
	if err := json.Unmarshal([]byte(service.Annotations[v1alpha1.AnnotationPreviousOwner]), &before); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", v1alpha1.AnnotationPreviousOwner, err)
	}
	var errs []error
	for what, wrong := range map[string][]string{
		"service.namespace": validation.IsDNS1123Label(before.Service.Namespace),
		"service.name":      validation.IsDNS1123Label(before.Service.Name),
		"service.port":      validation.IsValidPortNum(int(ptr.Deref(before.Service.Port, manifests.ServicePort))),
		// The ranges that kube-apiserver takes.
		"groupPriorityMinimum": validation.IsInRange(int(before.GroupPriorityMinimum), 1, 20000),
		"versionPriority":      validation.IsInRange(int(before.VersionPriority), 1, 1000),
	} {
		for _, why := range wrong {
			errs = append(errs, fmt.Errorf("%s %s", what, why))
		}
	}
	if before.InsecureSkipTLSVerify && len(before.CABundle) > 0 {
		errs = append(errs, errors.New("caBundle is set although insecureSkipTLSVerify is"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", v1alpha1.AnnotationPreviousOwner, err)
	}
	return &before, nil
}

func (o *owned) target() manifests.Target {
	return manifests.Target{
		Namespace: o.Service.Namespace, Name: o.Service.Name, Port: ptr.Deref(o.Service.Port, manifests.ServicePort),
		CABundle: o.CABundle, InsecureSkipTLSVerify: o.InsecureSkipTLSVerify,
	}
}

// restore makes the APIService what it was.
func (o *owned) restore(service *apiregistrationv1.APIService) {
	service.Spec.Service = &apiregistrationv1.ServiceReference{
		Namespace: o.Service.Namespace, Name: o.Service.Name, Port: ptr.To(ptr.Deref(o.Service.Port, manifests.ServicePort)),
	}
	service.Spec.CABundle, service.Spec.InsecureSkipTLSVerify = o.CABundle, o.InsecureSkipTLSVerify
	service.Spec.GroupPriorityMinimum, service.Spec.VersionPriority = o.GroupPriorityMinimum, o.VersionPriority
	service.Annotations = maps.Clone(service.Annotations)
	delete(service.Annotations, v1alpha1.AnnotationPreviousOwner)
	labels := map[string]string{}
	maps.Copy(labels, service.Labels)
	for key, value := range o.Labels {
		delete(labels, key)
		if value != nil {
			labels[key] = *value
		}
	}
	// Whatever the annotation says: with our label it would not be theirs.
	delete(labels, v1alpha1.LabelBackend)
	service.Labels = labels
}
