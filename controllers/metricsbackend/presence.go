// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// absent finds registered versions that a kube-apiserver does not list in its
// discovery: to clients that are connected to that one they do not exist. One that
// cannot be asked tells nothing; it may be down, and have no clients.
func (r *Reconciler) absent(ctx context.Context, s *scope) map[schema.GroupVersion]*defect {
	var versions []schema.GroupVersion
	for _, gv := range s.desired {
		if s.registered[apiServiceName(gv)] != nil && !s.isRetiring(gv) {
			versions = append(versions, gv)
		}
	}
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
		absent := s.history.streaks.Observe(stateKey{state: missingInDiscovery, name: gv.String()}, len(missing) > 0)
		switch {
		case len(missing) == 0:
		case absent.Elapsed < discoverySoak:
			defects[gv] = &defect{gv, v1alpha1.ReasonProgressing, "is registered; the discovery of kube-apiserver " +
				strings.Join(missing, ", ") + " does not list it yet"}
		default:
			defects[gv] = &defect{gv, v1alpha1.ReasonNotInDiscovery, "is registered, but the discovery of kube-apiserver " +
				strings.Join(missing, ", ") + " does not list it: look at the log of that kube-apiserver, or restart it"}
		}
	}
	return defects
}

// isBrief reports whether a defect is not reported yet. Only failing requests have a
// grace period here; kube-apiserver and maxAge have their own.
func (s *scope) isBrief(gv schema.GroupVersion, d *defect) bool {
	brief := d != nil && (d.reason == v1alpha1.ReasonRequestFailed || d.reason == v1alpha1.ReasonProgressing && s.persisted(apiServiceName(gv)) == v1alpha1.APIServiceAvailable)
	streak := s.history.streaks.Observe(stateKey{state: versionUnavailable, name: gv.String()}, brief)
	if !brief {
		return false
	}
	grace := requestGrace
	if d.reason == v1alpha1.ReasonProgressing {
		grace = discoverySoak
	}
	return s.isTransient(v1alpha1.ConditionAvailable, streak, grace)
}
