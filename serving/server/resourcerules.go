// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/resourcerules"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// resourcePoller evaluates resource rules. *resourcerules.Poller implements it.
type resourcePoller interface {
	Apply(*rules.ResourceQueries)
	Report() resourcerules.Report
}

// kubeletScraper scrapes kubelets. *kubelet.Source implements it.
type kubeletScraper interface {
	Report() v1alpha1.KubeletReport
	// HasRates reports whether rates are known, or else why not.
	HasRates() (bool, string)
}

// resourceRules decides whether resource metrics come from rules or from kubelets: from
// kubelets as long as no valid rules have been applied.
type resourceRules struct {
	kubelets kubeletScraper
	poller   resourcePoller

	mu sync.Mutex
	// given is true if the spec has rules. problems are the errors in them; unless they are
	// valid all the same, the previous rules stay active, if any.
	given, valid bool
	problems     []v1alpha1.RuleHealth
	// active is true if the poller evaluates rules, whether the current or previous ones.
	active bool
	// rules and sources are those of the spec.
	rules   *v1alpha1.ResourceRules
	sources []v1alpha1.SourceSpec
}

// apply applies the resource rules of a spec, if any.
func (r *resourceRules) apply(ctx context.Context, spec *v1alpha1.MetricsBackendSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	given := (*v1alpha1.ResourceRules)(nil)
	if spec.ResourceMetrics != nil {
		given = spec.ResourceMetrics.Rules
	}
	if equality.Semantic.DeepEqual(r.rules, given) && equality.Semantic.DeepEqual(r.sources, spec.Sources) {
		return
	}
	r.rules, r.sources = given.DeepCopy(), spec.DeepCopy().Sources
	if given == nil {
		if r.active {
			r.poller.Apply(nil)
		}
		r.given, r.active, r.problems = false, false, nil
		return
	}
	queries, problems := rules.CompileResourceRules(given, spec.Sources)
	r.given, r.valid, r.problems = true, queries != nil, problems
	if queries == nil {
		// See reportInvalid for what is wrong.
		klog.FromContext(ctx).Info("Cannot use the resource rules; the previous ones stay or, without any, kubelets are scraped")
		return
	}
	r.poller.Apply(queries)
	r.active = true
}

// kubeletSettings returns the settings of scrapes. No kubelet is scraped while rules are
// active, even if the current ones are invalid.
func (r *resourceRules) kubeletSettings(s config.Settings) kubelet.Settings {
	if s.ResourceMetrics && s.Spec.ResourceMetrics.Rules != nil && r.isActive() {
		s.Kubelet.NodeSelector = labels.Nothing()
	}
	return s.Kubelet
}

// report returns the report of the kubelets, with the newest sample of the rules if these are
// active.
func (r *resourceRules) report() v1alpha1.KubeletReport {
	report := r.kubelets.Report()
	if r.isActive() {
		report.NewestSample = r.poller.Report().Newest
	}
	return report
}

// hasRates reports whether rates are known or, with rules, whether these have results.
func (r *resourceRules) hasRates() (bool, string) {
	if !r.isActive() {
		return r.kubelets.HasRates()
	}
	report := r.poller.Report()
	return report.Complete(), fmt.Sprintf("resource rules have figures of %d nodes and %d pods", report.Nodes, report.Pods)
}

func (r *resourceRules) isActive() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active
}

// resourceRuleCount is the number of queries in resource rules.
const resourceRuleCount = 4

// health returns the problems of the rules, how many rules there are, and how many fail.
func (r *resourceRules) health() (problems []v1alpha1.RuleHealth, count, failing int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.given {
		return nil, 0, 0
	}
	problems = r.problems
	if r.valid {
		problems = slices.Concat(problems, r.poller.Report().Problems)
	}
	for _, p := range problems {
		if p.State != v1alpha1.RuleWarning {
			failing++
		}
	}
	return problems, resourceRuleCount, min(failing, resourceRuleCount)
}
