// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var invalidPartCount = metricSet.GaugeVec("config_invalid_parts",
	"Number of rules, sources and declared metrics that cannot be used, by part (rule, route, source, declared_metric). "+
		"The log and the status have their paths.", "part")

// maxInvalidLogged limits the lines for one change: tenants may declare thousands of metrics.
const maxInvalidLogged = 100

// reportInvalid counts the parts of the configuration that cannot be used, and logs those that
// are not in before. It returns all.
func (p *metricPipeline) reportInvalid(ctx context.Context, before map[v1alpha1.RuleHealth]bool) map[v1alpha1.RuleHealth]bool {
	logger := klog.FromContext(ctx)
	now, logged, more := map[v1alpha1.RuleHealth]bool{}, 0, 0
	for _, part := range []struct {
		name    string
		invalid []v1alpha1.RuleHealth
	}{
		{"rule", append(p.catalog.InvalidRules(), p.resourceRules.invalid()...)},
		{"source", p.sources.invalid()},
		{"route", p.invalidRoutes()},
		{"declared_metric", p.catalog.InvalidDeclared()},
	} {
		invalidPartCount.WithLabelValues(part.name).Set(float64(len(part.invalid)))
		for _, h := range part.invalid {
			now[h] = true
			switch {
			case before[h]:
			case logged < maxInvalidLogged:
				logged++
				logger.Error(nil, "A part of the configuration cannot be used; the others are", "path", h.Path, "reason", h.Reason, "message", h.Message)
			default:
				more++
			}
		}
	}
	if more > 0 {
		logger.Error(nil, "More parts of the configuration cannot be used", "count", more)
	}
	return now
}

// invalid returns the sources that cannot be used.
func (r *sourceRegistry) invalid() []v1alpha1.RuleHealth {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []v1alpha1.RuleHealth
	for i, s := range r.sources {
		if s.source == nil {
			all = append(all, v1alpha1.RuleHealth{
				Path: fmt.Sprintf("spec.sources[%d]", i), State: v1alpha1.RuleInvalid, Reason: string(reasonInvalidSpec), Message: s.invalid.Error(),
			})
		}
	}
	return all
}

// invalid returns the resource rules that cannot be used.
func (r *resourceRules) invalid() []v1alpha1.RuleHealth {
	r.mu.Lock()
	defer r.mu.Unlock()
	return invalidOnly(slices.Clone(r.problems))
}

// invalidRoutes returns the routes that cannot be used.
func (p *metricPipeline) invalidRoutes() []v1alpha1.RuleHealth {
	problems, _, _ := p.router.Health()
	return invalidOnly(problems)
}

func invalidOnly(problems []v1alpha1.RuleHealth) []v1alpha1.RuleHealth {
	return slices.DeleteFunc(problems, func(h v1alpha1.RuleHealth) bool { return h.State != v1alpha1.RuleInvalid })
}
