// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package answers

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// TestMetricsDocumented checks that the page for administrators has all metrics of how
// sources are asked, and names none that is not there.
func TestMetricsDocumented(t *testing.T) {
	content, err := os.ReadFile("../../docs/queries.md")
	if err != nil {
		t.Fatal(err)
	}
	page, served := string(content), map[string]bool{}
	collect := func(all ...metrics.Registerable) {
		for _, m := range all {
			served[m.FQName()] = true
		}
	}
	RegisterMetrics(collect)
	query.RegisterMetrics(collect)
	for name := range served {
		if !regexp.MustCompile("\\| `" + name + "[`{]").MatchString(page) {
			t.Errorf("%s is not in the table of metrics", name)
		}
	}
	for _, name := range regexp.MustCompile(`metrics_(api|backend)_[a-z_]+`).FindAllString(page, -1) {
		if !served[name] && !served[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("%s is no metric", name)
		}
	}
}
