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
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// namespaces is the resource whose label tells of which namespace a series is.
var namespaces = schema.GroupResource{Resource: "namespaces"}

// association says which labels name objects, and of which resource. It is immutable.
type association struct {
	// overrides by label; labels in order.
	overrides map[string]schema.GroupResource
	labels    []string
	template  *querytemplate.Template
	// pattern is the template turned into a regular expression of labels.
	pattern         *regexp.Regexp
	group, resource int
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

// compileTemplate has the template make a regular expression of labels, as
// prometheus-adapter does: what stands around group and resource is one already.
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
	a.group, a.resource = pattern.SubexpIndex("group"), pattern.SubexpIndex("resource")
	if a.resource < 0 {
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

// resolved is an association in a cluster: what its overrides mean there. It is
// immutable.
type resolved struct {
	*association
	index     *restmapping.Index
	resources map[string]restmapping.Resource
	// unknown are the overrides that the cluster does not know, in order.
	unknown []string
	// namespaceLabels name namespaces, in order.
	namespaceLabels []string
	// byTemplate holds the labels that a template with a group makes of all resources.
	// Its pattern cannot read each of them: groups have underscores of their own in a
	// label, such as networking_k8s_io, and the pattern ends a group at the first.
	byTemplate map[string]restmapping.Resource
}

func (a *association) resolve(x *restmapping.Index) *resolved {
	r := &resolved{association: a, index: x, resources: make(map[string]restmapping.Resource, len(a.labels))}
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
	if a.template == nil || a.group < 0 {
		return r
	}
	r.byTemplate = map[string]restmapping.Resource{}
	for _, resource := range x.All() {
		label, err := r.make(resource)
		if _, taken := r.byTemplate[label]; err == nil && !taken {
			r.byTemplate[label] = resource
		}
	}
	return r
}

// overriddenFirst puts the labels that overrides name before the others.
func (r *resolved) overriddenFirst(labels []string) []string {
	if len(r.overrides) == 0 || r.pattern == nil {
		return labels
	}
	ordered := slices.Clone(labels)
	slices.SortStableFunc(ordered, before(func(label string) bool {
		_, overridden := r.overrides[label]
		return overridden
	}))
	return ordered
}

// of returns the resource that a label names.
func (r *resolved) of(label string) (restmapping.Resource, bool) {
	if resource, ok := r.resources[label]; ok {
		return resource, true
	}
	if _, overridden := r.overrides[label]; overridden || r.pattern == nil {
		return restmapping.Resource{}, false
	}
	if m := r.pattern.FindStringSubmatch(label); m != nil {
		group := ""
		if r.group >= 0 {
			group = m[r.group]
		}
		if resource, ok := r.index.FindLabel(group, m[r.resource]); ok && r.reads(label, resource) {
			return resource, true
		}
	}
	resource, ok := r.byTemplate[label]
	return resource, ok
}

// reads says whether a label that the pattern matches can be meant: the pattern is loose,
// and the labels of a series are chosen by whoever is scraped. One that is more than a
// word must be just what the template makes.
func (r *resolved) reads(label string, resource restmapping.Resource) bool {
	if model.LegacyValidation.IsValidLabelName(label) {
		return true
	}
	made, err := r.make(resource)
	return err == nil && made == label
}

// make returns the label that the template makes for a resource.
func (r *resolved) make(resource restmapping.Resource) (string, error) {
	return r.template.Execute(querytemplate.Label{Group: restmapping.GroupLabel(resource.Group), Resource: resource.Singular})
}

// namespaceLabel returns the label that tells the namespace of series: one that they
// have, all of them if there is such a one, or else one that the rule names; empty where
// it names none.
func (r *resolved) namespaceLabel(f *family) string {
	for _, label := range f.sharedFirst(r.namespaceLabels) {
		if _, has := slices.BinarySearch(f.labels, label); has {
			return label
		}
	}
	return r.labelOf(namespaces.Resource)
}
