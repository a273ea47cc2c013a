// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// association maps labels to the resources whose objects they name. It is immutable.
type association struct {
	// overrides by label; labels in order.
	overrides map[string]schema.GroupResource
	labels    []string
	template  *querytemplate.Template
	// pattern matches the labels that the template yields.
	pattern                   *regexp.Regexp
	groupIndex, resourceIndex int // of the pattern's groups; -1 if it has none
}

func (a *association) empty() bool { return a == nil || len(a.overrides) == 0 && a.template == nil }

func compileAssociation(spec v1alpha1.RuleResources) (*association, *problem) {
	a := &association{overrides: map[string]schema.GroupResource{}}
	for label, r := range spec.Overrides {
		if !model.UTF8Validation.IsValidLabelName(label) {
			return a, invalidf(ReasonInvalidResources, "resources.overrides: %q cannot be a label's name", label)
		}
		if r.Resource == "" {
			return a, invalidf(ReasonInvalidResources, "resources.overrides[%s] names no resource: set its resource, such as pod", label)
		}
		a.overrides[label] = schema.GroupResource{Group: r.Group, Resource: r.Resource}
		a.labels = append(a.labels, label)
	}
	slices.Sort(a.labels)
	if spec.Template == "" {
		return a, nil
	}
	if err := a.compileTemplate(spec.Template); err != nil {
		return a, invalidf(ReasonInvalidResources, "resources.template: %v", err)
	}
	return a, nil
}

// compileTemplate executes the template with regular expressions for group and resource, as
// prometheus-adapter does: the text around them is a regular expression, too.
func (a *association) compileTemplate(text string) error {
	tmpl, err := querytemplate.Parse("template", text)
	if err != nil {
		return err
	}
	raw, err := tmpl.Execute(querytemplate.Label{Group: "(?P<group>.+?)", Resource: "(?P<resource>.+?)"})
	if err != nil {
		return err
	}
	pattern, err := regexp.Compile("^" + raw + "$")
	if err != nil {
		return fmt.Errorf("it does not make a pattern of labels: %w", err)
	}
	a.groupIndex, a.resourceIndex = pattern.SubexpIndex("group"), pattern.SubexpIndex("resource")
	if a.resourceIndex < 0 {
		return fmt.Errorf("<<.Resource>> is missing, so no label can name a resource: add it, such as kube_<<.Resource>>")
	}
	label, err := tmpl.Execute(querytemplate.Label{Group: "apps", Resource: "deployment"})
	if err != nil {
		return err
	}
	if !model.UTF8Validation.IsValidLabelName(label) || !pattern.MatchString(label) {
		return fmt.Errorf("deployments of the group apps would have the label %q, which the template itself does not read as such: use text, <<.Group>> and <<.Resource>> only", label)
	}
	a.template, a.pattern = tmpl, pattern
	return nil
}

// resolvedAssociation is an association with the resources of a cluster. It is immutable.
type resolvedAssociation struct {
	*association
	index     *restmapping.Mapper
	resources map[string]restmapping.Resource
	// unknown are the overrides of resources that the cluster does not have, in order.
	unknown []string
	// namespaceLabels name namespaces, in order.
	namespaceLabels []string
	// byTemplate holds the labels that a template with a group yields for all resources. The
	// pattern does not match all of them: a group has underscores in a label, such as
	// networking_k8s_io, and the pattern ends it at the first.
	byTemplate map[string]restmapping.Resource
}

func (a *association) resolve(x *restmapping.Mapper) *resolvedAssociation {
	r := &resolvedAssociation{association: a, index: x, resources: make(map[string]restmapping.Resource, len(a.labels))}
	for _, label := range a.labels {
		gr := a.overrides[label]
		resource, ok := x.Find(gr)
		if !ok {
			r.unknown = append(r.unknown, gr.String())
			continue
		}
		r.resources[label] = resource
		if resource.GroupResource() == namespaces {
			r.namespaceLabels = append(r.namespaceLabels, label)
		}
	}
	if a.template == nil || a.groupIndex < 0 {
		return r
	}
	r.byTemplate = map[string]restmapping.Resource{}
	for _, resource := range x.All() {
		label, err := r.label(resource)
		if _, taken := r.byTemplate[label]; err == nil && !taken {
			r.byTemplate[label] = resource
		}
	}
	return r
}

// overriddenFirst returns the labels with those of overrides first.
func (r *resolvedAssociation) overriddenFirst(labels []string) []string {
	if len(r.overrides) == 0 || r.pattern == nil {
		return labels
	}
	ordered := slices.Clone(labels)
	slices.SortStableFunc(ordered, trueFirst(func(label string) bool {
		_, overridden := r.overrides[label]
		return overridden
	}))
	return ordered
}

// resource returns the resource whose objects a label names.
func (r *resolvedAssociation) resource(label string) (restmapping.Resource, bool) {
	if resource, ok := r.resources[label]; ok {
		return resource, true
	}
	if _, overridden := r.overrides[label]; overridden || r.pattern == nil {
		return restmapping.Resource{}, false
	}
	if m := r.pattern.FindStringSubmatch(label); m != nil {
		group := ""
		if r.groupIndex >= 0 {
			group = m[r.groupIndex]
		}
		if resource, ok := r.index.FindLabel(group, m[r.resourceIndex]); ok && r.accepts(label, resource) {
			return resource, true
		}
	}
	resource, ok := r.byTemplate[label]
	return resource, ok
}

// accepts reports whether a label that the pattern matches may name a resource. The pattern is
// loose, and scraped workloads choose their labels: unless a label is a legacy name, it must
// be exactly what the template yields.
func (r *resolvedAssociation) accepts(label string, resource restmapping.Resource) bool {
	if model.LegacyValidation.IsValidLabelName(label) {
		return true
	}
	want, err := r.label(resource)
	return err == nil && want == label
}

// label returns the label that the template yields for a resource.
func (r *resolvedAssociation) label(resource restmapping.Resource) (string, error) {
	return r.template.Execute(querytemplate.Label{Group: restmapping.GroupLabel(resource.Group), Resource: resource.Singular})
}

// namespaceLabel returns the label that holds the namespace of series: one that all of them
// have, or some, or else one of the rule; empty if there is none.
func (r *resolvedAssociation) namespaceLabel(f *family) string {
	for _, label := range f.commonFirst(r.namespaceLabels) {
		if _, has := slices.BinarySearch(f.labels, label); has {
			return label
		}
	}
	return r.labelOf(namespaces.Resource)
}
