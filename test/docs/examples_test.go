// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/routes"
)

// TestExamplesAreValid checks that each whole MetricsBackend in the pages has only fields that exist, is valid, and has no
// route with a problem.
func TestExamplesAreValid(t *testing.T) {
	checked := 0
	for _, page := range pagesOf(t) {
		for _, block := range regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```").FindAllStringSubmatch(read(t, page), -1) {
			if !strings.Contains(block[1], "kind: MetricsBackend\n") || strings.Contains(block[1], "\n---\n") || strings.Contains(block[1], "…") {
				continue
			}
			checked++
			var backend v1alpha1.MetricsBackend
			if err := yaml.UnmarshalStrict([]byte(block[1]), &backend); err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			v1alpha1.SetDefaults(&backend.Spec)
			if errs := v1alpha1.Validate(&backend.Spec); len(errs) > 0 {
				t.Errorf("%s: %v", page, errs.ToAggregate())
			}
			router := routes.NewRouter(nil, nil)
			router.Apply(&backend.Spec)
			if problems, _, _ := router.Health(); len(problems) > 0 {
				t.Errorf("%s: %+v", page, problems)
			}
		}
	}
	if checked < 3 {
		t.Errorf("only %d examples", checked)
	}
}
