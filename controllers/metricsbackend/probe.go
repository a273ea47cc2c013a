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
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
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
	var asked sync.WaitGroup
	for _, p := range s.runningPods() {
		if p.Status.PodIP == "" {
			continue
		}
		asked.Go(func() {
			reached := s.connection(p.Pod)
			reached.Token = token
			p.answer, p.err = r.Pods.Probe(ctx, reached, versions)
		})
	}
	asked.Wait()
	for _, p := range s.runningPods() {
		if errors.Is(p.err, servingclient.ErrUnauthorized) {
			// The account may have been replaced, which makes its token invalid.
			r.tokens.Forget(account)
		}
	}
	s.rememberLacking(versions)
	s.countUnanswered()
	s.retireByAnswers(klog.FromContext(ctx))
	s.evaluateAnswers()
	if s.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue {
		s.reportFailingRequests()
	}
	return nil
}

// rememberLacking records which pod templates lack a version, by the answers of their pods.
func (s *reconcileState) rememberLacking(versions []schema.GroupVersion) {
	for _, p := range s.rollout.pods {
		for _, gv := range versions {
			if p.answer != nil {
				s.history.streaks.Set(stateKey{templateLacks, gv.String(), p.template()}, !p.answer.Serves[gv])
			}
		}
	}
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
	if r.Directory == nil || s.deploys() && (!s.rollout.podsRead || len(s.certificate.CABundle) == 0) {
		return
	}
	if !s.deploys() {
		r.Directory.Forget(s.backend.Name)
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
func (s *reconcileState) retireByAnswers(logger klog.Logger) {
	for _, name := range s.registeredNames() {
		gv, ok := manifests.VersionOf(name)
		if !ok || s.isRetiring(gv) {
			continue
		}
		v := s.version(gv)
		s.observeServers(v)
		d := lifecycle.Decide(v)
		if d.Action != lifecycle.Retire {
			continue
		}
		logger.Info("Taking a version out of discovery", "apiService", name, "why", d.Note)
		if v.IsUnanswered() {
			s.history.streaks.Set(stateKey{state: retiredForFailing, name: gv.String()}, true)
		}
		s.requestRetirement(gv, d.Note)
	}
}

// evaluateAnswers adds the pods' answers to ServingReady.
func (s *reconcileState) evaluateAnswers() {
	failing := s.history.streaks.Set(stateKey{state: probeFailing},
		slices.ContainsFunc(s.rollout.pods.ready(), func(p pod) bool { return p.err != nil }))
	for _, p := range s.rollout.pods.ready() {
		if p.err == nil {
			continue
		}
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
	for _, gv := range s.versions.desired {
		if notServing := s.servers().Lacking(gv); len(notServing) > 0 {
			s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed,
				fmt.Sprintf("%s is not served by %s: use an image that serves it, or take it out of the spec",
					apiServiceName(gv), strings.Join(notServing, ", ")))
			return
		}
	}
}
