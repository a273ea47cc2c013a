// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	defaultInterval       = 15 * time.Second
	defaultNamespaceLabel = "namespace"
)

// source has the settings of a source that rules need.
type source struct {
	name           string
	interval       time.Duration
	namespaceLabel string
	trusted        []string
	// headers and parameters are the names of those that may select the series that the server returns.
	headers, parameters []string
}

// confines reports whether queries declared in a namespace are confined to it.
func (s *source) confines(namespace string) bool {
	return !slices.Contains(s.trusted, "*") && !slices.Contains(s.trusted, namespace)
}

func (s *source) intervalOr(d *metav1.Duration) time.Duration {
	// An interval out of range is an error of the source, which then answers no query.
	if d != nil && d.Duration >= v1alpha1.MinInterval {
		return d.Duration
	}
	return s.interval
}

func (s *source) equal(o *source) bool {
	return s.name == o.name && s.interval == o.interval && s.namespaceLabel == o.namespaceLabel && slices.Equal(s.trusted, o.trusted) &&
		slices.Equal(s.headers, o.headers) && slices.Equal(s.parameters, o.parameters)
}

// requestHint names the headers and parameters for a message: with a wrong tenant or filter a server
// returns nothing.
func (s *source) requestHint() string {
	hint := ""
	if len(s.headers) > 0 {
		hint += " as its tenant (headers: " + strings.Join(s.headers, ", ") + ")"
	}
	if len(s.parameters) > 0 {
		hint += " with its queryParameters (" + strings.Join(s.parameters, ", ") + ")"
	}
	return hint
}

// sources are those with PromQL, in the order of the spec.
type sources []*source

func newSources(specs []v1alpha1.SourceSpec) sources {
	var all sources
	for _, spec := range specs {
		p := spec.Prometheus
		if p == nil {
			continue
		}
		s := &source{
			name: spec.Name, interval: defaultInterval, namespaceLabel: cmp.Or(p.Tenancy.NamespaceLabel, defaultNamespaceLabel),
			trusted: slices.Clone(p.Tenancy.TrustedNamespaces),
		}
		s.interval = s.intervalOr(p.Interval)
		for _, h := range p.Headers {
			s.headers = append(s.headers, h.Name)
		}
		for _, q := range p.QueryParameters {
			s.parameters = append(s.parameters, q.Name)
		}
		all = append(all, s)
	}
	return all
}

func (s sources) equal(o sources) bool { return slices.EqualFunc(s, o, (*source).equal) }

// find returns a source by its name, or the first.
func (s sources) find(name string) (*source, *problem) {
	if len(s) == 0 {
		return nil, invalidf(ReasonUnknownSource, "spec.sources has no Prometheus: add one")
	}
	if name == "" {
		return s[0], nil
	}
	var names []string
	for _, each := range s {
		if each.name == name {
			return each, nil
		}
		names = append(names, each.name)
	}
	return nil, invalidf(ReasonUnknownSource, "spec.sources has no Prometheus named %q: it has %s", name, strings.Join(names, ", "))
}
