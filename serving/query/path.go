// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Path returns the path of segments below the version of an API group, with parameters that are selectors by their names.
func Path(selectors map[string]labels.Selector, segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	values := url.Values{}
	for name, s := range selectors {
		if s != nil && !s.Empty() {
			values.Set(name, s.String())
		}
	}
	if len(values) > 0 {
		b.WriteString("?" + values.Encode())
	}
	return b.String()
}

// ExternalPath returns the path of an external metric.
func ExternalPath(namespace, metric string, series labels.Selector) string {
	return Path(map[string]labels.Selector{"labelSelector": series}, "namespaces", namespace, EscapeName(metric))
}
