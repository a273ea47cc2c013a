// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// existingResync is how often the endpoints of spec.existing are read. Nothing is watched
// outside the operator's namespaces.
const existingResync = 15 * time.Second

// probeExisting asks each ready endpoint of spec.existing which versions it serves. A
// version that the implementation lacks is left out, and is no failure as long as it
// serves another one.
func (r *Reconciler) probeExisting(ctx context.Context, s *reconcileState) error {
	s.requeueWithin(existingResync)
	found, err := r.readService(ctx, s.target())
	if err != nil {
		return err
	}
	s.probed.existing = found
	if found.missing != "" {
		r.retireByAnswers(ctx, s)
		reason := v1alpha1.ReasonServiceMissing
		if found.namespaceTerminating {
			reason = v1alpha1.ReasonNamespaceTerminating
		}
		message := found.missing + ": create it, or correct spec.existing.service"
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, reason, message)
		s.setCondition(v1alpha1.ConditionCertificatesValid, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady, "nothing shows a certificate: see ServingReady")
		s.setStalled(&stalledError{reason, message})
		return nil
	}
	if s.canProbe() && len(found.endpoints) > 0 {
		account, token, err := r.guestToken(ctx, s)
		if err != nil {
			return err
		}
		r.probeEndpoints(ctx, found, account, token, s.versionsToProbe())
	}
	failed := found.servers().FirstFailed()
	failing := s.history.streaks.Set(stateKey{state: probeFailing}, failed != nil)
	s.probed.transient = failed != nil && found.firstUntrusted() == nil && s.isTransient(v1alpha1.ConditionServingReady, failing, servingGrace)
	r.retireByAnswers(ctx, s)
	// A failure within its grace period keeps the known results.
	if !s.probed.transient || found.target.InsecureSkipTLSVerify {
		s.setResult(v1alpha1.ConditionCertificatesValid, found.certificatesValid(s.canProbe()))
	}
	if !s.probed.transient {
		s.setResult(v1alpha1.ConditionServingReady, found.servingReady(s.versions.desired, s.canProbe()))
	}
	return nil
}

// canProbe reports whether there can be an account to probe with. A backend that is
// blocked before it registered anything creates none.
func (s *reconcileState) canProbe() bool {
	return s.namespace.usable() && (!s.outcome.blocked || len(s.registered) > 0)
}

// requestRetirement marks a registered version to be retired by the next pass, so that
// the intent is in the status before the deletion. It leaves a version alone that is
// already being retired.
func (s *reconcileState) requestRetirement(gv schema.GroupVersion, why string) {
	if s.isRetiring(gv) {
		return
	}
	s.setVersionState(gv, v1alpha1.APIServiceRetiring, why)
	s.setCondition(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionFalse, v1alpha1.ReasonRetiring,
		fmt.Sprintf("%s: to be removed from discovery, since %s", apiServiceName(gv), why))
	s.requeueNow()
}

// offered returns the desired versions that every ready endpoint serves.
func (i *probedService) offered(desired []schema.GroupVersion) []schema.GroupVersion {
	servers := i.servers()
	return slices.DeleteFunc(slices.Clone(desired), func(gv schema.GroupVersion) bool { return !servers.AllServe(gv) })
}

// expected returns the versions that must be registered: all desired ones that are not
// left out.
func (s *reconcileState) expected() []schema.GroupVersion {
	expected := slices.DeleteFunc(slices.Clone(s.versions.desired), func(gv schema.GroupVersion) bool { return s.notOffered(gv) != "" })
	if len(expected) == 0 {
		return s.versions.desired
	}
	return expected
}

// servingReady returns ServingReady for the answers of the endpoints. Without canProbe
// there are none.
func (i *probedService) servingReady(desired []schema.GroupVersion, canProbe bool) conditionResult {
	failed, offered := i.servers().FirstFailed(), i.offered(desired)
	switch {
	case len(i.endpoints) == 0:
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonNoReadyEndpoint, fmt.Sprintf(
			"Service %s has no ready endpoint: are its pods running (kubectl get endpointslices -n %s -l kubernetes.io/service-name=%s)?",
			i.target, i.target.Namespace, i.target.Name)}
	case !canProbe:
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonDependencyNotReady, "no endpoint is asked while the backend is blocked: see Ready"}
	case failed != nil:
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonProbeFailed, fmt.Sprintf(
			"the operator cannot ask %s of Service %s what it serves: %v", failed.Name, i.target, failed.Err)}
	case len(offered) == 0 && len(desired) > 0:
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed, fmt.Sprintf(
			"Service %s serves no version that the spec names at all of its %d endpoints", i.target, len(i.endpoints))}
	}
	return conditionResult{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, fmt.Sprintf(
		"each ready endpoint of Service %s was asked; all serve %s", i.target, strings.Join(shortVersions(offered), " and "))}
}

// certificatesValid returns CertificatesValid for the answers of the endpoints.
func (i *probedService) certificatesValid(canProbe bool) conditionResult {
	untrusted := i.firstUntrusted()
	switch {
	case i.target.InsecureSkipTLSVerify:
		return conditionResult{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, fmt.Sprintf(
			"the certificate of Service %s is not verified, as spec.existing.insecureSkipTLSVerify says", i.target)}
	case untrusted != nil:
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonCertificateMismatch, fmt.Sprintf(
			"spec.existing.caBundle does not verify endpoint %s as %s: %v", untrusted.connection.Address, i.target.ServerName(), untrusted.err)}
	case i.servers().FirstFailed() != nil || len(i.endpoints) == 0 || !canProbe:
		return conditionResult{metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady, "not every ready endpoint showed its certificate: see ServingReady"}
	}
	return conditionResult{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, fmt.Sprintf(
		"spec.existing.caBundle verifies each ready endpoint as %s; whoever runs it renews its certificate", i.target.ServerName())}
}

// firstUntrusted returns the first endpoint whose certificate was rejected, or nil.
func (i *probedService) firstUntrusted() *probed {
	return find(i.endpoints, func(e *probed) bool {
		_, refused := errors.AsType[*servingclient.UntrustedError](e.err)
		return refused
	})
}
