// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// PlainName says whether a metric's name is a name wherever it stands in an expression.
// Since Prometheus 3 a metric may be called anything, braces and operators included,
// and what exposes it is any workload that is scraped. A keyword or a number is no
// plain name either.
func PlainName(name string) bool {
	if !model.LegacyValidation.IsValidMetricName(name) {
		return false
	}
	var item parser.Item
	parser.Lex(name).NextItem(&item)
	return (item.Typ == parser.IDENTIFIER || item.Typ == parser.METRIC_IDENTIFIER) && item.Val == name
}

// SameButName says whether two expressions are the same but for the names of metrics
// that were put into them. A name that can be more than a word never is the same.
func SameButName(one, oneName, two, twoName string) bool {
	if one == two {
		return true
	}
	if !model.LegacyValidation.IsValidMetricName(oneName) || !model.LegacyValidation.IsValidMetricName(twoName) {
		return false
	}
	a, err := Parse(one)
	if err != nil {
		return false
	}
	b, err := Parse(two)
	if err != nil {
		return false
	}
	return strings.ReplaceAll(a.String(), oneName, twoName) == b.String()
}
