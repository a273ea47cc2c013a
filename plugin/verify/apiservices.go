// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
)

// apiServiceRegistered: requests for an unregistered version get 404 (KEP-5207).
func apiServiceRegistered(_ context.Context, snap *snapshot) []Result {
	var results []Result
	for _, version := range snap.expected {
		r := aggregation.Find(snap.registrations, version)
		switch {
		case r == nil:
			remedy, command := "the implementation's installation must register it", ""
			if len(snap.backends) > 0 {
				remedy, command = registrationWaits, statusCommand
			}
			results = append(results, fail(nameOf(version), "there is no such APIService: requests for this version get 404",
				remedy+"; if this version should not be there, name the others with --expect").withCommand(command))
		case r.Deleting, r.Service == "":
			results = append(results, unusable(r, "implementation"))
		default:
			results = append(results, pass(r.Name, "points to %s%s", r.Service, owner(r)))
		}
	}
	return results
}

const registrationWaits = "the status tells what its registration waits for"

// deleteCommand returns the command that deletes an APIService, once the user has confirmed it.
func deleteCommand(r *aggregation.Registration) string {
	return "kubectl delete apiservice " + r.Name + " --interactive"
}

// unusable returns the failure of an APIService that is being deleted or has no Service. The registrant is
// what can register it again.
func unusable(r *aggregation.Registration, registrant string) Result {
	if r.Deleting {
		return fail(r.Name, "is being deleted", "which finalizer holds it?").withCommand("kubectl describe apiservice " + r.Name)
	}
	return fail(r.Name, "points to kube-apiserver itself, which does not serve it",
		"delete it, and let the "+registrant+" register it again").withCommand(deleteCommand(r))
}

// unavailable returns the failure of an APIService that the aggregator reports unavailable.
func (snap *snapshot) unavailable(r *aggregation.Registration) Result {
	remedy := fmt.Sprintf("are the pods behind %s ready, and what does their log say?", r.Service)
	if v1alpha1.IsUnreachable(r.Reason, r.Message) {
		remedy = v1alpha1.RequiredConnections(snap.endpoints(r)) + "."
	}
	return fail(r.Name, fmt.Sprintf("not Available, %s: %s", r.Reason, r.Message), remedy+" Namespaces cannot be deleted meanwhile")
}

// endpoints describes where the pods behind an APIService accept connections.
func (snap *snapshot) endpoints(r *aggregation.Registration) string {
	if backend := snap.backend(r.Backend); backend != nil && backend.Spec.Existing == nil {
		return backend.Spec.Serving.Endpoints()
	}
	return "the endpoints of Service " + r.Service
}

func owner(r *aggregation.Registration) string {
	if r.Backend == "" {
		return ""
	}
	return ", kept by MetricsBackend " + r.Backend
}

// apiServiceStale: a stale APIService keeps its version in discovery while its requests
// fail, and clients prefer v1 (KEP-5207, downgrade).
func apiServiceStale(_ context.Context, snap *snapshot) []Result {
	var results []Result
	for i := range snap.registrations {
		r := &snap.registrations[i]
		if slices.Contains(snap.expected, r.Version) {
			continue
		}
		remedy, command := fmt.Sprintf("if nothing serves %s any more, delete it; otherwise add it to --expect", r.Version), deleteCommand(r)
		switch {
		case r.Backend != "":
			remedy, command = "the status tells what its removal waits for", statusCommandOf(r.Backend)
		case r.Available:
			remedy, command = fmt.Sprintf("%s serves it: add %s to --expect, or have it removed by what installed it", r.Service, r.Version),
				"kubectl describe apiservice "+r.Name
		}
		results = append(results, fail(r.Name, fmt.Sprintf("is registered and not expected: it points to %s%s, and clients that find it in discovery use it",
			r.Service, owner(r)), remedy).withCommand(command))
	}
	if len(results) == 0 {
		results = append(results, pass(group, "no APIService but for %s", listed(snap.expected)))
	}
	return results
}

// apiServiceAvailable reports the aggregator's last availability check.
func apiServiceAvailable(_ context.Context, snap *snapshot) []Result {
	return snap.each(func(r *aggregation.Registration) Result {
		if r.Available {
			return pass(r.Name, "Available, %s", r.Reason)
		}
		return snap.unavailable(r)
	})
}

// apiServiceVerified: without TLS verification, anybody who can impersonate the implementation
// controls the metrics of autoscalers.
func apiServiceVerified(_ context.Context, snap *snapshot) []Result {
	return snap.each(func(r *aggregation.Registration) Result {
		switch {
		case r.InsecureSkipTLSVerify && snap.insecureAllowed(r):
			return warn(r.Name, "kube-apiserver does not verify "+r.Service+": insecureSkipTLSVerify",
				"give its owner a caBundle when it has a certificate for its Service's name")
		case r.InsecureSkipTLSVerify:
			return fail(r.Name, "insecureSkipTLSVerify is true, although its MetricsBackend does not say so",
				"take insecureSkipTLSVerify out; the operator does so by itself while it runs")
		case r.CABundleError != "":
			return fail(r.Name, r.CABundleError, "correct spec.caBundle; the operator does so by itself while it runs")
		case r.Authorities == 0 && r.Backend == "":
			return warn(r.Name, "has no caBundle: it is verified with the authorities of kube-apiserver's own system", "")
		case r.Authorities == 0:
			return fail(r.Name, "has no caBundle", "the operator sets it while it runs").withCommand(statusCommandOf(r.Backend))
		}
		end, now := r.CABundleNotAfter.Time, snap.cluster.Now()
		switch {
		case end.Before(now):
			return fail(r.Name, "every authority in caBundle ended, the last on "+day(end), "renew the certificate of "+r.Service+" and its authority")
		case end.Before(now.Add(aggregation.ExpiresSoon)):
			return warn(r.Name, "the last authority in caBundle ends on "+day(end), "renew the certificate of "+r.Service+" and its authority")
		}
		return pass(r.Name, "verified with caBundle until %s", day(end))
	})
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// insecureAllowed reports whether the owner's spec has insecureSkipTLSVerify, or the owner is
// no MetricsBackend, as with metrics-server's stock manifest.
func (snap *snapshot) insecureAllowed(r *aggregation.Registration) bool {
	if r.Backend == "" {
		return true
	}
	b := snap.backend(r.Backend)
	return b != nil && b.Spec.Existing != nil && b.Spec.Existing.InsecureSkipTLSVerify
}
