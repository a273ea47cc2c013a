// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

// probe asks each pod by itself what it serves: the aggregator's check passes when one of
// five tries does, and a Service does not tell its pods apart. It includes pods that are
// not ready, since a pod of an older image stays unready while a version is registered
// that it does not serve.
func (r *Reconciler) probe(ctx context.Context, s *reconcileState) error {
	r.updateDirectory(s)
	if !s.deploys() {
		return r.probeExisting(ctx, s)
	}
	if len(s.runningPods()) == 0 || len(s.certificate.CABundle) == 0 {
		return nil
	}
	account := s.proberAccount()
	token, err := r.tokens.Token(ctx, account)
	if err != nil {
		if s.outcome.blocked && client.IgnoreNotFound(err) == nil {
			return nil
		}
		return err
	}
	versions := s.versionsToProbe()
	var reached []*probed
	for _, p := range s.runningPods() {
		if p.Status.PodIP != "" {
			p.connection = s.connection(p.Pod)
			reached = append(reached, &p.probed)
		}
	}
	r.ask(ctx, reached, account, token, versions)
	// Which pod templates lack a version, by the answers of their pods.
	for _, p := range s.rollout.pods {
		for _, gv := range versions {
			if p.answer != nil {
				s.history.streaks.Set(stateKey{templateLacks, gv.String(), p.template()}, !p.answer.Serves[gv])
			}
		}
	}
	s.countUnanswered()
	r.retireByAnswers(ctx, s)
	s.evaluateAnswers()
	if s.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue {
		s.reportFailingRequests()
	}
	return nil
}

// ask probes servers, some at a time, with a token of the account. It forgets the token if one of them rejects it: the account
// may have been replaced, which makes its token invalid.
func (r *Reconciler) ask(ctx context.Context, servers []*probed, account client.ObjectKey, token string, versions []schema.GroupVersion) {
	var asked errgroup.Group
	asked.SetLimit(maxConcurrentProbes)
	for _, server := range servers {
		asked.Go(func() error {
			server.connection.Token = token
			server.answer, server.err = r.Pods.Probe(ctx, server.connection, versions)
			return nil
		})
	}
	_ = asked.Wait()
	if anyUnauthorized(servers) {
		r.tokens.Forget(account)
	}
}

// anyUnauthorized reports whether a server rejected the token.
func anyUnauthorized(servers []*probed) bool {
	return slices.ContainsFunc(servers, func(server *probed) bool { return errors.Is(server.err, servingclient.ErrUnauthorized) })
}

// connection returns how to connect to a pod, without the token.
func (s *reconcileState) connection(p *corev1.Pod) servingclient.Pod {
	return servingclient.Pod{
		Address:    net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(portOf(p)))),
		ServerName: s.serving.ServerName(),
		CABundle:   s.certificate.CABundle,
	}
}

// updateDirectory publishes the ready pods to other controllers.
func (r *Reconciler) updateDirectory(s *reconcileState) {
	switch {
	case !s.deploys():
		r.Directory.Forget(s.backend.Name)
		return
	case !s.rollout.podsRead || len(s.certificate.CABundle) == 0:
		return
	}
	var entries []servingclient.Entry
	for _, p := range s.rollout.pods.ready() {
		if p.Status.PodIP != "" {
			entries = append(entries, servingclient.Entry{Name: p.Name, Pod: s.connection(p.Pod), Account: s.proberAccount()})
		}
	}
	r.Directory.Set(s.backend.Name, entries)
}

// runningPods returns all pods that may answer, terminating ones included.
func (s *reconcileState) runningPods() []*pod {
	var running []*pod
	for _, pods := range []pods{s.rollout.pods, s.rollout.terminating} {
		for i := range pods {
			if pods[i].Status.Phase == corev1.PodRunning {
				running = append(running, &pods[i])
			}
		}
	}
	return running
}

// proberAccount returns the ServiceAccount that probes pods.
func (s *reconcileState) proberAccount() client.ObjectKey {
	return client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.ProberName()}
}

// versionsToProbe returns all versions that are desired, excluded or registered.
func (s *reconcileState) versionsToProbe() []schema.GroupVersion {
	versions := slices.Concat(s.versions.desired, s.excluded())
	for _, name := range s.registeredNames() {
		if gv, ok := manifests.VersionOf(name); ok && !slices.Contains(versions, gv) {
			versions = append(versions, gv)
		}
	}
	return versions
}

// servers returns what serves the versions, and what it answered.
func (s *reconcileState) servers() lifecycle.Servers {
	if !s.deploys() {
		if s.probed.existing == nil {
			return nil
		}
		return s.probed.existing.servers()
	}
	var all lifecycle.Servers
	for _, pods := range []pods{s.rollout.pods, s.rollout.terminating} {
		for _, p := range pods {
			all = append(all, p.server())
		}
	}
	return all
}

// retireByAnswers marks the registered versions that are to be retired by what the servers answered.
func (r *Reconciler) retireByAnswers(ctx context.Context, s *reconcileState) {
	for _, name := range s.registeredNames() {
		gv, ok := manifests.VersionOf(name)
		if !ok || s.isRetiring(gv) {
			continue
		}
		v := s.version(gv)
		s.observeServers(v)
		d := r.next(v)
		if d.Action != lifecycle.Retire {
			continue
		}
		klog.FromContext(ctx).Info("Taking a version out of discovery", "apiService", name, "why", d.Note)
		if v.IsUnanswered() {
			s.outcome.unanswered = append(s.outcome.unanswered, gv)
		}
		s.requestRetirement(gv, d.Note)
	}
}

// evaluateAnswers adds the pods' answers to ServingReady.
func (s *reconcileState) evaluateAnswers() {
	p := find(s.rollout.pods.ready(), func(p pod) bool { return p.err != nil })
	failing := s.history.streaks.Set(stateKey{state: probeFailing}, p.err != nil)
	if p.err != nil {
		if s.probed.transient = s.isTransient(v1alpha1.ConditionServingReady, failing, servingGrace); !s.probed.transient {
			hint := " (a NetworkPolicy must let the operator's pod connect)"
			if errors.Is(p.err, servingclient.ErrUnauthorized) {
				hint = ""
			}
			s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed,
				fmt.Sprintf("the operator cannot ask pod %s/%s at %s what it serves: %v%s",
					p.Namespace, p.Name, p.Status.PodIP, p.err, hint))
			return
		}
	}
	if !s.rollout.finished {
		return
	}
	servers := s.servers()
	for _, gv := range s.versions.desired {
		if notServing := servers.Lacking(gv); len(notServing) > 0 {
			s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed,
				fmt.Sprintf("%s is not served by %s: use an image that serves it, or take it out of the spec",
					apiServiceName(gv), strings.Join(notServing, ", ")))
			return
		}
	}
}

// countUnanswered counts for how long no ready pod answers requests of a version, or all do. While one
// pod answers, the version stays: some clients know no other, such as the HPA controller.
func (s *reconcileState) countUnanswered() {
	servers := s.servers()
	for _, gv := range s.versionsToProbe() {
		failing, answering := servers.ByRequests(gv)
		streaks, name := s.history.streaks, gv.String()
		streaks.Set(stateKey{state: allRequestsFailing, name: name}, len(failing) > 0 && len(answering) == 0)
		answered := streaks.Set(stateKey{state: requestsSucceeding, name: name}, servers.AllServe(gv))
		recovery := recoveryTimeAlone
		retired := streaks.Get(stateKey{state: retiredForFailing, name: name}).Count
		if s.hasAlternative(gv) {
			recovery = recoveryTime
			for range retired - 1 {
				recovery = min(2*recovery, maxRecoveryTime)
			}
		}
		if retired > 0 && answered.Elapsed < recovery {
			s.probed.recovering[gv] = fmt.Sprintf("its requests failed: waits until every ready pod has answered them for %s without a break", recovery)
		}
	}
}

// isInDiscovery reports whether the version is registered for our pods and not being
// retired.
func (s *reconcileState) isInDiscovery(gv schema.GroupVersion) bool {
	live := s.registered[apiServiceName(gv)]
	return live != nil && s.identity().PointsToPods(live) && !s.isRetiring(gv)
}

func (s *reconcileState) isRetiring(gv schema.GroupVersion) bool {
	return s.apiServices[apiServiceName(gv)].State.IsRetiring()
}

// hasAlternative reports whether every ready pod answers another registered version of
// the group.
func (s *reconcileState) hasAlternative(gv schema.GroupVersion) bool {
	servers := s.servers()
	return slices.ContainsFunc(s.versions.desired, func(other schema.GroupVersion) bool {
		return other != gv && other.Group == gv.Group && s.isInDiscovery(other) && servers.AllServe(other)
	})
}

// reportFailingRequests reports in ServingReady which requests fail, after servingGrace.
func (s *reconcileState) reportFailingRequests() {
	servers := s.servers()
	for _, gv := range s.versions.desired {
		failing, answering := servers.ByRequests(gv)
		streak := s.history.streaks.Set(stateKey{state: requestsFailing, name: gv.String()}, len(failing) > 0)
		if len(failing) == 0 {
			continue
		}
		if s.isTransient(v1alpha1.ConditionServingReady, streak, servingGrace) {
			s.probed.transient = true
			continue
		}
		message := fmt.Sprintf("%s is served, but its requests fail in %s", apiServiceName(gv), failing.DescribeFailing(gv))
		switch {
		case !s.isInDiscovery(gv):
			message += "; it is not in discovery"
		case len(answering) > 0:
			message += "; it stays in discovery for the pods that answer: delete the pod, or use an image that works"
		default:
			message += "; it is taken out of discovery if that goes on: see the pod's log"
		}
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRequestFailed, message)
		return
	}
}

// isTransient reports whether a failure is not reported yet: the condition was True,
// and the failure is within its grace period. It then requeues the backend.
func (s *reconcileState) isTransient(condition string, failing debounce.Streak, grace time.Duration) bool {
	if !s.wasTrue(condition) || failing.Elapsed >= grace {
		return false
	}
	s.requeueWithin(transientRecheck)
	return true
}

func (s *reconcileState) wasTrue(condition string) bool {
	return meta.IsStatusConditionTrue(s.storedStatus.Conditions, condition)
}
