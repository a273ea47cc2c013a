// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/adoption"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// verify requests metrics of each version through kube-apiserver, as any client would.
// The condition of an APIService is no proof: it is not updated when the APIService
// changes, and passes when one try of five does.
func (r *Reconciler) verify(ctx context.Context, s *reconcileState) error {
	if s.registered == nil {
		return nil
	}
	var broken []defect
	var available []schema.GroupVersion
	absent := r.missingFromDiscovery(ctx, s)
	for _, gv := range s.expected() {
		live := s.registered[apiServiceName(gv)]
		if live == nil {
			d := defect{gv, v1alpha1.ReasonDependencyNotReady, "is not registered yet"}
			if c := s.conflict(gv); c.reason == v1alpha1.ReasonNotOwned {
				d = defect{gv, c.reason, "is not served by this backend: see Stalled"}
			}
			broken = append(broken, d)
			continue
		}
		retiring := s.apiServices[live.Name].State.IsRetiring()
		d := r.findDefect(ctx, s, gv, live)
		if d == nil {
			d = absent[gv]
		}
		if (lifecycle.IsUnverified(live) || s.versions.decided[live.Name] == lifecycle.Contested) && !retiring && s.identity().PointsToTarget(live) {
			switch reverted, err := r.confirmAdoption(ctx, s, gv, live, d); {
			case err != nil:
				return err
			case reverted:
				broken = append(broken, defect{gv, s.conflict(gv).reason, "is not served by this backend any more: see Stalled"})
				continue
			}
		}
		if s.isDefectTransient(gv, d) {
			d = nil
		}
		switch {
		case d != nil && !retiring:
			broken = append(broken, *d)
			s.setVersionState(gv, s.stateOf(live, false), d.message)
		case retiring:
			broken = append(broken, defect{gv, v1alpha1.ReasonRetiring, "is being removed from discovery"})
		default:
			available = append(available, gv)
			s.setVersionState(gv, s.stateOf(live, true), cmp.Or(s.conflict(gv).message, lifecycle.AdoptedFrom(live)))
		}
	}
	s.backend.Status.RegisteredVersions = strings.Join(shortVersions(available), ", ")
	switch {
	case len(s.versions.desired) == 0:
		s.setCondition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonDependencyNotReady,
			"no version can be registered: see Ready for the reason")
	case len(broken) > 0:
		// The reason of the first failure, or else of the first defect.
		failure := find(broken, func(d defect) bool {
			return readyStatusFor(metav1.Condition{Reason: d.reason}) == metav1.ConditionFalse
		})
		s.setCondition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, cmp.Or(failure, broken[0]).reason,
			describeDefects(broken)+s.connectionHint())
	default:
		s.setCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
			describeAvailable(available))
	}
	return nil
}

// defect is why a version is not available, or cannot be registered although it is ready.
type defect struct {
	gv              schema.GroupVersion
	reason, message string
}

func describeDefects(defects []defect) string {
	var parts []string
	for _, d := range defects {
		parts = append(parts, apiServiceName(d.gv)+" "+d.message)
	}
	return strings.Join(parts, "; ")
}

func (r *Reconciler) findDefect(ctx context.Context, s *reconcileState, gv schema.GroupVersion, live *apiregistrationv1.APIService) *defect {
	switch checked := helper.GetAPIServiceConditionByType(live, apiregistrationv1.Available); {
	case checked == nil:
		return &defect{gv, v1alpha1.ReasonProgressing, "is registered; kube-apiserver has not checked it yet"}
	case checked.Status != apiregistrationv1.ConditionTrue:
		// Not the aggregator's message: it contains addresses and ports that change.
		return &defect{gv, v1alpha1.ReasonAggregatorUnavailable,
			fmt.Sprintf("is reported unavailable by kube-apiserver (%s): kubectl describe apiservice %s", checked.Reason, live.Name)}
	}
	return r.requestDefect(ctx, s, gv)
}

// requestDefect returns why a request through kube-apiserver fails, or nil.
func (r *Reconciler) requestDefect(ctx context.Context, s *reconcileState, gv schema.GroupVersion) *defect {
	if live := s.registered[apiServiceName(gv)]; live != nil && lifecycle.IsUnverified(live) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, adoptionTimeout)
		defer cancel()
	}
	maxAge := v1alpha1.DefaultMaxSampleAge
	if rm := s.spec.ResourceMetrics; rm != nil { // none while versions are kept for their clients
		maxAge = rm.MaxSampleAge.Duration
	}
	fresh := true
	var err error
	if gv.Group == manifests.ResourceMetricsGroup {
		fresh, err = r.Aggregator.FreshNodeSample(ctx, gv, s.now.Add(-maxAge))
	} else {
		// SourcesHealthy reports which metrics exist.
		err = r.Aggregator.Discovers(ctx, gv)
	}
	switch {
	case err != nil:
		klog.FromContext(ctx).Info("A request through kube-apiserver failed", "apiService", apiServiceName(gv), "err", err)
		return &defect{gv, v1alpha1.ReasonRequestFailed, "does not answer through kube-apiserver: " + stableErrorMessage(err)}
	case !fresh:
		return &defect{gv, v1alpha1.ReasonNoFreshSample,
			fmt.Sprintf("answers, but no node has a sample younger than %s: see SourcesHealthy", maxAge)}
	}
	return nil
}

// describeAvailable describes what was verified.
func describeAvailable(versions []schema.GroupVersion) string {
	var parts []string
	add := func(answer string, others bool) {
		those := slices.DeleteFunc(slices.Clone(versions), func(gv schema.GroupVersion) bool {
			return others == (gv.Group == manifests.ResourceMetricsGroup)
		})
		if len(those) > 0 {
			parts = append(parts, strings.Join(shortVersions(those), " and ")+answer)
		}
	}
	add(" answer with fresh samples", false)
	add(" answer", true)
	return strings.Join(parts, "; ") + " through kube-apiserver"
}

// connectionHint says which connections kube-apiserver needs, or "" unless it reports
// that it cannot reach the endpoints.
func (s *reconcileState) connectionHint() string {
	for _, gv := range s.expected() {
		if c := adoption.Unavailable(s.registered[apiServiceName(gv)]); c != nil && v1alpha1.IsUnreachable(c.Reason, c.Message) {
			return ". " + s.requiredConnections()
		}
	}
	return ""
}

// requiredConnections says which connections a firewall must allow.
func (s *reconcileState) requiredConnections() string {
	if !s.deploys() {
		return v1alpha1.RequiredConnections("the endpoints of Service " + s.target().String())
	}
	return v1alpha1.RequiredConnections(s.spec.Serving.Endpoints())
}

// stateOf returns the state of a registered version for the status. answers says that requests
// succeed.
func (s *reconcileState) stateOf(service *apiregistrationv1.APIService, answers bool) v1alpha1.APIServiceState {
	switch decided := s.versions.decided[service.Name]; {
	case slices.Contains(s.keptNames(), service.Name):
		return v1alpha1.APIServiceKept
	case decided == lifecycle.Canary, decided == lifecycle.Moving && !s.identity().PointsToTarget(service), decided == lifecycle.Trial, decided == lifecycle.Contested:
		return v1alpha1.APIServiceState(decided)
	case answers, helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available):
		return v1alpha1.APIServiceAvailable
	}
	return v1alpha1.APIServiceRegistered
}

// missingFromDiscovery returns a defect for each registered version that a kube-apiserver
// does not list in its discovery. One that cannot be queried does not count: it may be
// down and have no clients.
func (r *Reconciler) missingFromDiscovery(ctx context.Context, s *reconcileState) map[schema.GroupVersion]*defect {
	versions := slices.DeleteFunc(slices.Clone(s.versions.desired), func(gv schema.GroupVersion) bool {
		return s.registered[apiServiceName(gv)] == nil || s.isRetiring(gv)
	})
	if len(versions) == 0 {
		return nil
	}
	presence, err := r.Aggregator.Discovered(ctx, versions)
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Cannot ask each kube-apiserver whether its discovery lists the versions", "err", err)
		return nil
	}
	defects := map[schema.GroupVersion]*defect{}
	for _, gv := range versions {
		missing := presence.Missing(gv)
		absent := s.history.streaks.Set(stateKey{state: missingInDiscovery, name: gv.String()}, len(missing) > 0)
		switch {
		case len(missing) == 0:
		case absent.Elapsed < aggregator.DiscoveryDelay:
			defects[gv] = &defect{gv, v1alpha1.ReasonProgressing, "is registered; the discovery of kube-apiserver " +
				strings.Join(missing, ", ") + " does not list it yet"}
		default:
			defects[gv] = &defect{gv, v1alpha1.ReasonNotInDiscovery, "is registered, but the discovery of kube-apiserver " +
				strings.Join(missing, ", ") + " does not list it: look at the log of that kube-apiserver, or restart it"}
		}
	}
	return defects
}

// isDefectTransient reports whether a defect is within its grace period. Only failing
// requests have one here; kube-apiserver and maxSampleAge have their own.
func (s *reconcileState) isDefectTransient(gv schema.GroupVersion, d *defect) bool {
	brief := d != nil && (d.reason == v1alpha1.ReasonRequestFailed || d.reason == v1alpha1.ReasonProgressing && slices.Contains(strings.Split(s.storedStatus.RegisteredVersions, ", "), shortVersion(gv)))
	streak := s.history.streaks.Set(stateKey{state: versionUnavailable, name: gv.String()}, brief)
	if !brief {
		return false
	}
	grace := requestGrace
	if d.reason == v1alpha1.ReasonProgressing {
		grace = aggregator.DiscoveryDelay
	}
	return s.isTransient(v1alpha1.ConditionAvailable, streak, grace)
}
