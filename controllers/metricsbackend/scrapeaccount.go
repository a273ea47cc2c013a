// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
)

// Pods send kubelets the token of an account that may do nothing else. Those of an image, or
// of an operator, of an earlier release send their own. As long as there may be any, the
// account of serving keeps the permission that it had: a rollout, or a backend whose spec has
// such an image, must not lose its kubelets.

// scrapeTokens is whose tokens the pods send, by their reports.
type scrapeTokens int

const (
	scrapeTokensUnknown scrapeTokens = iota
	// someOwn: a pod sends its own.
	someOwn
	// noneOwn: every running pod sends that of the account of scrapes.
	noneOwn
)

// scrapeAccount describes the account whose tokens are for kubelets.
func (s *reconcileState) scrapeAccount() string {
	return "ServiceAccount " + s.serving.Namespace + "/" + s.serving.ScrapeName()
}

// mayScrapeItself reports whether pods may send kubelets the token of their own account. Until
// pods have reported, what was granted stays.
func (r *Reconciler) mayScrapeItself(ctx context.Context, s *reconcileState) (bool, error) {
	if s.history.scrapeTokens != scrapeTokensUnknown {
		return s.history.scrapeTokens == someOwn, nil
	}
	binding := inventory.Prototype(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
	err := r.Client.Get(ctx, client.ObjectKey{Name: s.serving.OwnScrapeName()}, binding)
	switch {
	case err == nil:
		return true, nil
	case !apierrors.IsNotFound(err):
		return false, fmt.Errorf("get ClusterRoleBinding %s: %w", s.serving.OwnScrapeName(), err)
	}
	var deployment appsv1.Deployment
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.Name()}, &deployment)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("get Deployment %s: %w", s.serving.Name(), err)
	}
	// An operator of an earlier release named no account.
	return !slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v1alpha1.ScrapeAccountVariable })
	}), nil
}

// observeScrapeTokens remembers whose tokens the pods say that they send, for the next pass.
func (s *reconcileState) observeScrapeTokens(logger klog.Logger) {
	running, reported := s.runningPods(), 0
	for _, p := range running {
		if p.answer == nil || p.answer.Sources == nil {
			continue
		}
		if p.answer.Sources.Kubelets.Account == "" {
			if s.history.scrapeTokens != someOwn {
				logger.Info("A serving pod sends kubelets the token of its own account, which can read Secrets of sources: "+
					"update spec.serving.image, unless the rollout does", "pod", klog.KObj(p.Pod), "image", imageOf(p.Pod))
			}
			s.setScrapeTokens(someOwn)
			return
		}
		reported++
	}
	if len(running) > 0 && reported == len(running) {
		s.setScrapeTokens(noneOwn)
	}
}

// setScrapeTokens makes the next pass follow soon if it changes what is granted.
func (s *reconcileState) setScrapeTokens(tokens scrapeTokens) {
	s.history.scrapeTokens = tokens
	if !s.outcome.blocked && s.serving.OwnScrapes != (tokens == someOwn) {
		s.requeueWithin(progressMin)
	}
}
