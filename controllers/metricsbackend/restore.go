// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/comparison"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// observePreviousOwner asks the Service of the recorded previous owner whether it serves the version.
func (r *Reconciler) observePreviousOwner(ctx context.Context, s *reconcileState, v *lifecycle.Version) lifecycle.PreviousService {
	problem, transient := r.previousOwnerProblem(ctx, s, v.Recorded().Target(), v.GV)
	failing := s.history.streaks.Set(stateKey{state: previousOwnerFailing, name: v.Name()}, problem != "" && transient)
	return lifecycle.PreviousService{Problem: problem, Transient: transient, Failing: failing.Elapsed}
}

// handBack restores the recorded state of an APIService, in one write.
func (r *Reconciler) handBack(ctx context.Context, s *reconcileState, service *apiregistrationv1.APIService) error {
	previous, err := lifecycle.ReadPreviousOwner(service)
	if err != nil {
		return err
	}
	target := previous.Target()
	klog.FromContext(ctx).Info("Handing an APIService back", "apiService", service.Name, "service", target.String())
	restored := service.DeepCopy()
	// The record does not have those that spec.serving.labels got after the takeover.
	maps.DeleteFunc(restored.Labels, func(key, _ string) bool { _, ours := s.serving.Labels()[key]; return ours })
	previous.Restore(restored)
	// With the resourceVersion that was read, so that no concurrent change is lost.
	if err := r.Client.Update(ctx, restored, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return fmt.Errorf("hand APIService %s back to Service %s: %w", service.Name, target, err)
	}
	s.history.streaks.Reset(stateKey{state: previousOwnerFailing, name: service.Name})
	s.history.streaks.Reset(stateKey{state: guestTokenFailing, name: service.Name})
	r.Events.Eventf(s.backend, service, corev1.EventTypeNormal, "VersionHandedBack", "Retire", "%s",
		fmt.Sprintf("handed APIService %s back to Service %s", service.Name, target))
	return nil
}

// previousOwnerProblem returns why the target does not serve the version, or "". transient
// reports that the problem may end by itself, so that the caller waits up to
// lifecycle.PreviousOwnerGrace.
func (r *Reconciler) previousOwnerProblem(ctx context.Context, s *reconcileState, target manifests.Target, gv schema.GroupVersion) (reason string, transient bool) {
	found, err := r.readService(ctx, target)
	switch {
	case err != nil:
		return fmt.Sprintf("it cannot be read: %s", stableErrorMessage(err)), true
	case found.missing != "":
		return found.missing, false
	case len(found.endpoints) == 0:
		// In a terminating namespace there is no time to wait.
		return "it has no ready endpoint", !s.namespace.gone
	}
	account, token, err := r.guestToken(ctx, s)
	// A deletion that has waited for an answer does not wait for the token again.
	waited := max(s.history.streaks.Get(stateKey{state: previousOwnerFailing, name: apiServiceName(gv)}).Elapsed,
		s.history.streaks.Set(stateKey{state: guestTokenFailing, name: apiServiceName(gv)}, err != nil).Elapsed)
	switch {
	case err != nil && s.namespace.usable() && waited < lifecycle.PreviousOwnerGrace:
		return fmt.Sprintf("it cannot be asked: %s", stableErrorMessage(err)), true
	case err != nil:
		// Without a token no probe is possible. Ready endpoints must do; they served this
		// version before.
		klog.FromContext(ctx).Info("Cannot ask the previous owner, there is no token for it; its endpoints are ready", "service", target.String(), "err", err)
		return "", false
	}
	r.probeEndpoints(ctx, found, account, token, []schema.GroupVersion{gv})
	servers := found.servers()
	lacking, failed := servers.Lacking(gv), servers.FirstFailed()
	serves := slices.ContainsFunc(servers, func(server lifecycle.Server) bool { return server.Serves[gv] })
	switch {
	case len(lacking) > 0:
		return lacking[0] + " does not serve it", false
	case failed != nil && !serves && s.namespace.gone && anyUnauthorized(found.endpoints):
		// The account is gone, and its token invalid: as without an account.
		return "", false
	case failed != nil && !serves:
		return fmt.Sprintf("%s cannot be asked: %v", failed.Name, failed.Err), !s.namespace.gone
	}
	// An endpoint that does not answer now is no reason to remove the version.
	return "", false
}

// servedByPrevious reports whether the recorded owner of an APIService of ours serves the version, and each metric of it
// that an autoscaler reads.
func (r *Reconciler) servedByPrevious(ctx context.Context, s *reconcileState, v *lifecycle.Version) (served bool) {
	key := stateKey{previousLacking, v.Name(), fmt.Sprint(s.backend.Generation)}
	if last := s.history.streaks.Get(key); !v.IsRecorded() || last.Count > 0 && last.Elapsed < previousRecheck {
		return false
	}
	s.history.streaks.Reset(key)
	defer func() { s.history.streaks.Set(key, !served) }()
	previous, err := lifecycle.ReadPreviousOwner(v.Live)
	if err != nil {
		return false
	}
	if problem, _ := r.previousOwnerProblem(ctx, s, previous.Target(), v.GV); problem != "" {
		return false
	}
	if v.GV.Group == manifests.ResourceMetricsGroup {
		return true
	}
	metrics, err := r.metricsOfAutoscalers(ctx, v, s.metricsWithValues)
	if err == nil && len(metrics) > 0 {
		var discovery metav1.APIResourceList
		if discovery, err = r.discoveryOf(ctx, s, previous.Target(), v.GV); err == nil {
			metrics = comparison.Unserved(metrics, discovery)
		}
	}
	if err != nil {
		klog.FromContext(ctx).Info("Cannot ask the previous owner of an APIService for its metrics", "apiService", v.Name(), "err", err)
	}
	return err == nil && len(metrics) == 0
}

// metricsWithValues returns the metrics of an autoscaler but those of which it has got no value for valuesMissing: it cannot
// lose them. While its workload has no replicas, or has just got some, it has no values of any.
func (s *reconcileState) metricsWithValues(a *autoscalingv2.HorizontalPodAutoscaler) []autoscalingv2.MetricSpec {
	fails := slices.ContainsFunc(a.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionFalse && strings.HasPrefix(c.Reason, "FailedGet") && s.now.Sub(c.LastTransitionTime.Time) >= valuesMissing
	})
	repeated := s.history.streaks.Set(stateKey{autoscalerFailing, a.Namespace, a.Name}, fails).Elapsed >= previousRecheck
	var with []autoscalingv2.MetricSpec
	for i, metric := range a.Spec.Metrics {
		// The HPA controller keeps the order, and leaves empty what it could not read.
		if !repeated || i >= len(a.Status.CurrentMetrics) || a.Status.CurrentMetrics[i].Type != "" {
			with = append(with, metric)
		}
	}
	return with
}

// disown removes the operator's labels and annotations from an APIService that another
// manager repointed. Deleting or restoring it would undo that manager's change.
func (r *Reconciler) disown(ctx context.Context, s *reconcileState, live *apiregistrationv1.APIService) error {
	updated := live.DeepCopy()
	updated.Spec.CABundle, _ = lifecycle.CutAuthority(live.Spec.CABundle, "")
	delete(updated.Annotations, v1alpha1.AnnotationPreviousOwner)
	delete(updated.Annotations, v1alpha1.AnnotationUnverified)
	delete(updated.Labels, v1alpha1.LabelInstallation)
	for key, value := range s.serving.Labels() {
		maps.DeleteFunc(updated.Labels, func(k, v string) bool { return k == key && v == value })
	}
	klog.FromContext(ctx).Info("Leaving an APIService to the manager that repointed it", "apiService", live.Name, "service", lifecycle.DescribeTarget(live))
	// With the resourceVersion that was read, so that no concurrent change is lost.
	if err := r.Client.Update(ctx, updated, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return fmt.Errorf("take the operator's labels off APIService %s: %w", live.Name, err)
	}
	r.Events.Eventf(s.backend, live, corev1.EventTypeNormal, "VersionLeft", "Retire", "%s",
		text.Truncate(fmt.Sprintf("left APIService %s to the manager that pointed it to %s", live.Name, lifecycle.DescribeTarget(live)), maxNote))
	return nil
}
