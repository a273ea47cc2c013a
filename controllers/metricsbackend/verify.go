// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// verify asks for metrics as any client would, through kube-apiserver, and with
// each version. An APIService's own condition is no proof: it is not renewed when
// the APIService changes, and passes when one try of five does.
func (r *Reconciler) verify(ctx context.Context, s *scope) error {
	if !s.observed {
		return nil
	}
	var broken []defect
	var available []schema.GroupVersion
	absent := r.absent(ctx, s)
	for _, gv := range s.expected() {
		live := s.registered[apiServiceName(gv)]
		if live == nil {
			broken = append(broken, defect{gv, v1alpha1.ReasonDependencyNotReady, "is not registered yet"})
			continue
		}
		retiring := s.apiServices[live.Name].State == v1alpha1.APIServiceRetiring
		d := r.defectOf(ctx, s, gv, live)
		if d == nil {
			d = absent[gv]
		}
		if s.isBrief(gv, d) {
			d = nil
		}
		switch {
		case d != nil && !retiring:
			broken = append(broken, *d)
			s.setState(gv, stateOf(live), d.message)
		case retiring:
			broken = append(broken, defect{gv, v1alpha1.ReasonRetiring, "is being removed from discovery"})
		default:
			available = append(available, gv)
			message := adoptedFrom(live)
			if held := s.held[live.Name]; held != nil {
				message = held.message
			}
			s.setState(gv, v1alpha1.APIServiceAvailable, message)
		}
	}
	s.backend.Status.RegisteredVersions = strings.Join(s.availableVersions(), ", ")
	switch {
	case len(s.desired) == 0:
		s.mark(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonDependencyNotReady,
			"no version can be registered: see Ready for the reason")
	case len(broken) > 0:
		s.mark(v1alpha1.ConditionAvailable, metav1.ConditionFalse, worst(broken), describe(broken))
	default:
		s.mark(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
			describeAvailable(available))
	}
	return nil
}

// defect is what keeps a version from being available.
type defect struct {
	gv              schema.GroupVersion
	reason, message string
}

// worst is the reason of the first defect that is a failure, not work in progress.
func worst(defects []defect) string {
	for _, d := range defects {
		if readyWhile(metav1.Condition{Reason: d.reason}) == metav1.ConditionFalse {
			return d.reason
		}
	}
	return defects[0].reason
}

func describe(defects []defect) string {
	var parts []string
	for _, d := range defects {
		parts = append(parts, apiServiceName(d.gv)+" "+d.message)
	}
	return strings.Join(parts, "; ")
}

func (r *Reconciler) defectOf(ctx context.Context, s *scope, gv schema.GroupVersion, live *apiregistrationv1.APIService) *defect {
	switch checked := aggregated(live); {
	case checked == nil:
		return &defect{gv, v1alpha1.ReasonProgressing, "is registered; kube-apiserver has not checked it yet"}
	case checked.Status != apiregistrationv1.ConditionTrue:
		// Not the aggregator's message: it names addresses and ports of the moment.
		return &defect{gv, v1alpha1.ReasonAggregatorUnavailable,
			fmt.Sprintf("is reported unavailable by kube-apiserver (%s): kubectl describe apiservice %s; "+
				"can kube-apiserver reach %s?", checked.Reason, live.Name, s.behind())}
	}
	if gv.Group != manifests.ResourceMetricsGroup {
		return r.discoveryDefect(ctx, gv)
	}
	maxAge := v1alpha1.DefaultMaxAge
	if rm := s.spec.ResourceMetrics; rm != nil { // none while versions are kept for their clients
		maxAge = rm.MaxAge.Duration
	}
	fresh, err := r.Aggregator.FreshNodeSample(ctx, gv, s.now.Add(-maxAge))
	switch {
	case err != nil:
		klog.FromContext(ctx).Info("A request through kube-apiserver failed", "apiService", live.Name, "err", err)
		return &defect{gv, v1alpha1.ReasonRequestFailed, "does not answer through kube-apiserver: " + stableMessage(err)}
	case !fresh:
		return &defect{gv, v1alpha1.ReasonNoFreshSample,
			fmt.Sprintf("answers, but no node has a sample younger than %s: see SourcesHealthy", maxAge)}
	}
	return nil
}

// discoveryDefect is what keeps a version of custom or external metrics from being
// available: that its discovery does not answer. There is nothing else that it must
// have: which metrics exist is the sources' affair, see SourcesHealthy.
func (r *Reconciler) discoveryDefect(ctx context.Context, gv schema.GroupVersion) *defect {
	err := r.Aggregator.Discovers(ctx, gv)
	if err == nil {
		return nil
	}
	klog.FromContext(ctx).Info("Discovery through kube-apiserver failed", "apiService", apiServiceName(gv), "err", err)
	return &defect{gv, v1alpha1.ReasonRequestFailed, "does not answer through kube-apiserver: " + stableMessage(err)}
}

// describeAvailable tells what of the versions was seen.
func describeAvailable(versions []schema.GroupVersion) string {
	var sampled, discovered []string
	for _, gv := range versions {
		if gv.Group == manifests.ResourceMetricsGroup {
			sampled = append(sampled, shortVersion(gv))
		} else {
			discovered = append(discovered, shortVersion(gv))
		}
	}
	var parts []string
	if len(sampled) > 0 {
		parts = append(parts, strings.Join(sampled, " and ")+" answer with fresh samples")
	}
	if len(discovered) > 0 {
		parts = append(parts, strings.Join(discovered, " and ")+" answer")
	}
	return strings.Join(parts, "; ") + " through kube-apiserver"
}

// behind names what kube-apiserver must reach.
func (s *scope) behind() string {
	if !s.deploys() {
		return "the endpoints of Service " + s.target().String()
	}
	return fmt.Sprintf("the pods at port %d", *s.spec.Serving.Port)
}

// aggregated is what the aggregator says of the APIService; nil when it has not
// looked at it yet.
func aggregated(service *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	for i := range service.Status.Conditions {
		if c := &service.Status.Conditions[i]; c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return nil
}

func stateOf(service *apiregistrationv1.APIService) v1alpha1.APIServiceState {
	if checked := aggregated(service); checked != nil && checked.Status == apiregistrationv1.ConditionTrue {
		return v1alpha1.APIServiceAvailable
	}
	return v1alpha1.APIServiceRegistered
}
