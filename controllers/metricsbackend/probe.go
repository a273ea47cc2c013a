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
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// probe asks each pod by itself what it serves: the aggregator's own check passes
// when one of five tries does, and behind a Service no pod can be told from
// another. Pods that are not ready are asked too, since a pod of an older image
// stays unready as long as a version is registered that it does not serve.
func (r *Reconciler) probe(ctx context.Context, s *scope) error {
	r.enter(s)
	if !s.deploys() {
		return r.probeExisting(ctx, s)
	}
	if len(s.runningPods()) == 0 || len(s.caBundle) == 0 {
		return nil
	}
	account := s.proberAccount()
	token, err := r.tokens.Token(ctx, account)
	if err != nil {
		if s.blocked && client.IgnoreNotFound(err) == nil {
			return nil
		}
		return err
	}
	versions := s.versionsToAsk()
	var asked sync.WaitGroup
	for _, p := range s.runningPods() {
		if p.Status.PodIP == "" {
			continue
		}
		asked.Go(func() {
			reached := s.reach(p.Pod)
			reached.Token = token
			p.answer, p.err = r.Pods.Ask(ctx, reached, versions)
		})
	}
	asked.Wait()
	for _, p := range s.runningPods() {
		if errors.Is(p.err, servingclient.ErrUnauthorized) {
			// The account may have been replaced, and its token is worth nothing.
			r.tokens.Forget(account)
		}
	}
	s.judgeRequests(klog.FromContext(ctx))
	s.judgeAnswers()
	if s.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue {
		s.judgeFailing()
	}
	return nil
}

// reach is how a pod is asked, but for the token.
func (s *scope) reach(p *corev1.Pod) servingclient.Pod {
	return servingclient.Pod{
		Address:    net.JoinHostPort(p.Status.PodIP, strconv.Itoa(int(portOf(p)))),
		ServerName: s.serving.ServerName(),
		CABundle:   s.caBundle,
	}
}

// enter tells others that ask pods which ones are ready.
func (r *Reconciler) enter(s *scope) {
	if r.Directory == nil || s.deploys() && (!s.podsRead || len(s.caBundle) == 0) {
		return
	}
	if !s.deploys() {
		r.Directory.Forget(s.backend.Name)
		return
	}
	var entries []servingclient.Entry
	for _, p := range s.readyPods() {
		if p.Status.PodIP != "" {
			entries = append(entries, servingclient.Entry{Name: p.Name, Pod: s.reach(p.Pod), Account: s.proberAccount()})
		}
	}
	r.Directory.Set(s.backend.Name, entries)
}

// runningPods are all that may answer, ending ones too.
func (s *scope) runningPods() []*pod {
	var running []*pod
	for _, pods := range [][]pod{s.pods, s.ending} {
		for i := range pods {
			if pods[i].Status.Phase == corev1.PodRunning {
				running = append(running, &pods[i])
			}
		}
	}
	return running
}

// proberAccount is the ServiceAccount with whose token pods are asked.
func (s *scope) proberAccount() client.ObjectKey {
	return client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.ProberName()}
}

// versionsToAsk are all that are desired, or would be, or are registered.
func (s *scope) versionsToAsk() []schema.GroupVersion {
	versions := slices.Concat(s.desired, s.yielded)
	for _, name := range s.registeredNames() {
		if gv, ok := versionOf(name); ok && !slices.Contains(versions, gv) {
			versions = append(versions, gv)
		}
	}
	return versions
}

// portOf is the port that the pod itself listens on, which differs from the
// spec's while a change of it is rolled out.
func portOf(p *corev1.Pod) int32 {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == manifests.PortName {
				return port.ContainerPort
			}
		}
	}
	return v1alpha1.DefaultPort
}

// judgeAnswers adds to ServingReady what pods said, and lets go of registered
// versions that a pod does not serve: a ready one, which answers requests now,
// or one of the current revision, which waits to.
func (s *scope) judgeAnswers() {
	for _, name := range s.registeredNames() {
		gv, ok := versionOf(name)
		if !ok || s.isRetiring(gv) {
			continue
		}
		if !s.leadsToServing(s.registered[name]) {
			// It is served elsewhere; our pods are about to take it over, or cannot. Those
			// that serve no version of its group end no move, and should take nothing away.
			ofGroup := func(other schema.GroupVersion) bool { return other.Group == gv.Group && s.servedByAll(other) }
			if lacking := s.lacking(gv); s.rolledOut && len(lacking) > 0 && slices.ContainsFunc(s.desired, ofGroup) {
				s.letGo(gv, lacking[0]+" does not serve it")
			}
			continue
		}
		for _, p := range s.pods {
			if (p.ready || p.current) && p.answer != nil && !p.answer.Serves[gv] {
				s.letGo(gv, fmt.Sprintf("pod %s, image %s, does not serve it", p.Name, imageOf(p.Pod)))
				break
			}
		}
	}
	failing := s.history.streaks.Observe(stateKey{state: probeFailing},
		slices.ContainsFunc(s.readyPods(), func(p pod) bool { return p.err != nil }))
	for _, p := range s.readyPods() {
		if p.err == nil {
			continue
		}
		if s.transient = s.isTransient(v1alpha1.ConditionServingReady, failing, servingGrace); !s.transient {
			hint := " (a NetworkPolicy must let the operator's pod connect)"
			if errors.Is(p.err, servingclient.ErrUnauthorized) {
				hint = ""
			}
			s.mark(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed,
				fmt.Sprintf("the operator cannot ask pod %s/%s at %s what it serves: %v%s",
					p.Namespace, p.Name, p.Status.PodIP, p.err, hint))
			return
		}
	}
	if !s.rolledOut {
		return
	}
	for _, gv := range s.desired {
		if lacking := s.lacking(gv); len(lacking) > 0 {
			s.mark(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed,
				fmt.Sprintf("%s is not served by %s: use an image that serves it, or take it out of the spec",
					apiServiceName(gv), strings.Join(lacking, ", ")))
			return
		}
	}
}

// lacking names the ready pods that said they do not serve the version.
func (s *scope) lacking(gv schema.GroupVersion) []string {
	var names []string
	for _, p := range s.readyPods() {
		if p.answer != nil && !p.answer.Serves[gv] {
			names = append(names, fmt.Sprintf("pod %s (image %s)", p.Name, imageOf(p.Pod)))
		}
	}
	return names
}

// stillEnding tells of a pod that is ending and may still answer a request for
// the version that it does not serve, over a connection from before; or is empty.
// One that does not answer counts until it had to be gone: on a node that was
// lost, pods stay Running for ever.
func (s *scope) stillEnding(gv schema.GroupVersion) string {
	for _, p := range s.ending {
		name := fmt.Sprintf("pod %s (image %s)", p.Name, imageOf(p.Pod))
		switch {
		case p.answer != nil && !p.answer.Serves[gv]:
			return name + ", which is ending and does not serve it"
		case p.answer == nil && s.now.Before(p.DeletionTimestamp.Time):
			return name + ", which is ending and does not answer"
		}
	}
	return ""
}

// servedByAll tells whether there is a ready pod and every one said that it
// serves the version, and answered a request of it.
func (s *scope) servedByAll(gv schema.GroupVersion) bool {
	ready := s.readyPods()
	return len(ready) > 0 && !slices.ContainsFunc(ready, func(p pod) bool {
		return p.answer == nil || !p.answer.Serves[gv] || p.answer.Failing[gv] != ""
	})
}

func imageOf(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		if c.Name == manifests.ContainerName {
			return c.Image
		}
	}
	return "unknown"
}
