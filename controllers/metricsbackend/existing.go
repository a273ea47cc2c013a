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

// existingResync is how often the endpoints of spec.existing are read again:
// nothing is watched outside of the operator's namespaces.
const existingResync = 15 * time.Second

// probeExisting asks each ready endpoint of spec.existing which versions it
// serves. What it serves is the implementation's own affair, so a version that it
// lacks is left out, and is no failure as long as it serves another one.
func (r *Reconciler) probeExisting(ctx context.Context, s *scope) error {
	s.requeueWithin(existingResync)
	found, err := r.readImplementation(ctx, s.target())
	if err != nil {
		return err
	}
	s.implementation = found
	if found.missing {
		s.judgeMissing()
		return nil
	}
	if s.mayAsk() && len(found.endpoints) > 0 {
		account, token, err := r.guestToken(ctx, s)
		if err != nil {
			return err
		}
		r.ask(ctx, found, account, token, s.versionsToAsk())
	}
	failing := s.history.streaks.Observe(stateKey{state: probeFailing}, found.failed() != nil)
	s.transient = found.failed() != nil && found.untrusted() == nil && s.isTransient(v1alpha1.ConditionServingReady, failing, servingGrace)
	s.retireUnserved()
	s.judgeExistingCertificates()
	s.judgeEndpoints()
	return nil
}

// mayAsk tells whether there can be an account to ask with. A backend that is held
// up before it has registered anything makes none.
func (s *scope) mayAsk() bool {
	return !s.unmanaged && !s.withoutNamespace && (!s.blocked || len(s.registered) > 0)
}

// judgeMissing lets go of what leads to a Service that is not there: its
// APIServices answer nothing, and block the deletion of every namespace.
func (s *scope) judgeMissing() {
	found := s.implementation
	for _, name := range s.registeredNames() {
		if gv, ok := versionOf(name); ok && leadsTo(s.registered[name], found.target) {
			s.letGo(gv, found.why)
		}
	}
	reason := v1alpha1.ReasonServiceMissing
	if found.ending {
		reason = v1alpha1.ReasonNamespaceTerminating
	}
	message := found.why + ": create it, or correct spec.existing.service"
	s.mark(v1alpha1.ConditionServingReady, metav1.ConditionFalse, reason, message)
	s.mark(v1alpha1.ConditionCertificatesValid, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady, "nothing shows a certificate: see ServingReady")
	s.stall(&stalledError{reason, message})
}

// retireUnserved lets go of registered versions that the implementation does not
// serve: those that lead to it, and those that would have to be led to it from
// where they are served now. The latter only when it is known well that the others
// can be moved, since a move that cannot be finished should take nothing away.
func (s *scope) retireUnserved() {
	found := s.implementation
	for _, name := range s.registeredNames() {
		gv, ok := versionOf(name)
		lacking := found.lacking(gv)
		if !ok || len(lacking) == 0 {
			continue
		}
		if leadsTo(s.registered[name], found.target) || found.failed() == nil && len(s.offered()) > 0 {
			s.letGo(gv, fmt.Sprintf("endpoint %s of Service %s does not serve it", lacking[0], found.target))
		}
	}
}

// letGo marks a registered version for the next pass, which retires it: the intent
// is in the status before the first deletion. One that is being retired already is
// left to that, which knows what holds it up and when to look again.
func (s *scope) letGo(gv schema.GroupVersion, why string) {
	if s.isRetiring(gv) {
		return
	}
	s.setState(gv, v1alpha1.APIServiceRetiring, why)
	s.mark(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionFalse, v1alpha1.ReasonRetiring,
		fmt.Sprintf("%s: to be removed from discovery, since %s", apiServiceName(gv), why))
	s.again()
}

// offered are the desired versions that every ready endpoint serves.
func (s *scope) offered() []schema.GroupVersion {
	var offered []schema.GroupVersion
	for _, gv := range s.desired {
		if s.implementation.servesAll(gv) {
			offered = append(offered, gv)
		}
	}
	return offered
}

// expected are the versions that must be registered for the backend to be as its
// spec says: of an implementation that someone else runs those that it serves.
func (s *scope) expected() []schema.GroupVersion {
	expected := slices.DeleteFunc(slices.Clone(s.desired), func(gv schema.GroupVersion) bool { return s.leftOut(gv) != "" })
	if len(expected) == 0 {
		return s.desired
	}
	return expected
}

// judgeEndpoints sets ServingReady by what the endpoints answered.
func (s *scope) judgeEndpoints() {
	found := s.implementation
	var reason, message string
	status := metav1.ConditionFalse
	switch failed := found.failed(); {
	case len(found.endpoints) == 0:
		reason = v1alpha1.ReasonNoReadyEndpoint
		message = fmt.Sprintf("Service %s has no ready endpoint: are its pods running (kubectl get endpointslices -n %s -l kubernetes.io/service-name=%s)?",
			found.target, found.target.Namespace, found.target.Name)
	case !s.mayAsk():
		reason, message = v1alpha1.ReasonDependencyNotReady, "no endpoint is asked while the backend is held up: see Ready"
	case s.transient:
		return // What was known stands.
	case failed != nil:
		reason = v1alpha1.ReasonProbeFailed
		message = fmt.Sprintf("the operator cannot ask endpoint %s of Service %s what it serves: %v", failed.address, found.target, failed.err)
	case len(s.offered()) == 0 && len(s.desired) > 0:
		reason = v1alpha1.ReasonVersionNotServed
		message = fmt.Sprintf("Service %s serves no version that the spec names at all of its %d endpoints", found.target, len(found.endpoints))
	default:
		status, reason = metav1.ConditionTrue, v1alpha1.ReasonSucceeded
		message = fmt.Sprintf("each ready endpoint of Service %s was asked; all serve %s", found.target, versionsIn(s.offered()))
	}
	s.mark(v1alpha1.ConditionServingReady, status, reason, message)
}

// judgeExistingCertificates sets CertificatesValid by how the connections went.
func (s *scope) judgeExistingCertificates() {
	found := s.implementation
	var message string
	status, reason := metav1.ConditionTrue, v1alpha1.ReasonSucceeded
	untrusted := found.untrusted()
	switch failed := found.failed(); {
	case found.target.InsecureSkipTLSVerify:
		message = fmt.Sprintf("the certificate of Service %s is not verified, as spec.existing.insecureSkipTLSVerify says", found.target)
	case untrusted != nil:
		status, reason = metav1.ConditionFalse, v1alpha1.ReasonCertificateMismatch
		message = fmt.Sprintf("spec.existing.caBundle does not verify endpoint %s as %s: %v", untrusted.address, found.target.ServerName(), untrusted.err)
	case s.transient:
		return
	case failed != nil || len(found.endpoints) == 0 || !s.mayAsk():
		status, reason = metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady
		message = "not every ready endpoint showed its certificate: see ServingReady"
	default:
		message = fmt.Sprintf("spec.existing.caBundle verifies each ready endpoint as %s; whoever runs it renews its certificate", found.target.ServerName())
	}
	s.mark(v1alpha1.ConditionCertificatesValid, status, reason, message)
}

// untrusted is the first endpoint whose certificate was refused, or nil.
func (i *implementation) untrusted() *endpoint {
	for n := range i.endpoints {
		var refused *servingclient.UntrustedError
		if errors.As(i.endpoints[n].err, &refused) {
			return &i.endpoints[n]
		}
	}
	return nil
}

func versionsIn(versions []schema.GroupVersion) string {
	var names []string
	for _, gv := range versions {
		names = append(names, shortVersion(gv))
	}
	return strings.Join(names, " and ")
}
