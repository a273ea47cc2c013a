// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/resourcerules"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
)

// resourcePoller evaluates resource rules.
type resourcePoller interface {
	Apply(*rules.ResourceQueries)
	Report() resourcerules.Report
}

// kubeletFigures is what kubelets tell where there are no resource rules.
type kubeletFigures interface {
	reporter
	Primed() (bool, string)
}

// resourceFigures tells how resource metrics do, wherever their figures come from. While
// there are resource rules no kubelet is asked, see settingsFrom and configuration.
type resourceFigures struct {
	kubelets kubeletFigures
	poller   resourcePoller

	mu sync.Mutex
	// ruled says that there are rules, and invalid is what is wrong with those that were
	// read last. Unless they are inForce all the same, the ones before stay, if there were
	// any.
	ruled, inForce bool
	// polling says that rules are in force, those that were read last or older ones.
	polling bool
	invalid []v1alpha1.RuleHealth
	// rules and sources are those that were read last.
	rules   *v1alpha1.ResourceRules
	sources []v1alpha1.SourceSpec
}

// apply puts the resource rules of a spec in force, or none.
func (f *resourceFigures) apply(ctx context.Context, spec *v1alpha1.MetricsBackendSpec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	given := (*v1alpha1.ResourceRules)(nil)
	if spec.ResourceMetrics != nil {
		given = spec.ResourceMetrics.Rules
	}
	if equality.Semantic.DeepEqual(f.rules, given) && equality.Semantic.DeepEqual(f.sources, spec.Sources) {
		return
	}
	f.rules, f.sources = given.DeepCopy(), spec.DeepCopy().Sources
	if given == nil {
		if f.polling {
			f.poller.Apply(nil)
		}
		f.ruled, f.polling, f.invalid = false, false, nil
		return
	}
	queries, invalid := rules.CompileResourceRules(given, spec.Sources)
	f.ruled, f.inForce, f.invalid = true, queries != nil, invalid
	if queries == nil {
		klog.FromContext(ctx).Info("Cannot use the resource rules; those before stay in force or, without any, the figures of kubelets", "reason", invalid[0].Reason, "path", invalid[0].Path, "message", invalid[0].Message)
		return
	}
	f.poller.Apply(queries)
	f.polling = true
}

// Report implements reporter: without kubelets, only when the newest figures are of.
func (f *resourceFigures) Report() v1alpha1.KubeletReport {
	report := f.kubelets.Report()
	if f.byRules() {
		report.NewestSample = f.poller.Report().Newest
	}
	return report
}

// Primed reports whether rates can be served or, with rules, whether these have answered.
func (f *resourceFigures) Primed() (bool, string) {
	if !f.byRules() {
		return f.kubelets.Primed()
	}
	r := f.poller.Report()
	return r.Complete(), fmt.Sprintf("resource rules have figures of %d nodes and %d pods", r.Nodes, r.Pods)
}

// byRules says that the figures come from rules. Where there are none yet that can be
// used, kubelets tell them still.
func (f *resourceFigures) byRules() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.polling
}

// health returns what is wrong with the rules, how many there are, and how many fail.
func (f *resourceFigures) health() (problems []v1alpha1.RuleHealth, count, failing int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ruled {
		return nil, 0, 0
	}
	problems = f.invalid
	if f.inForce {
		problems = slices.Concat(problems, f.poller.Report().Problems)
	}
	for _, p := range problems {
		if p.State != v1alpha1.RuleWarning {
			failing++
		}
	}
	return problems, resourceRuleCount, min(failing, resourceRuleCount)
}

// resourceRuleCount is how many queries resource rules are.
const resourceRuleCount = 4
