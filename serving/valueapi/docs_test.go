// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
)

// TestDocumented checks that the page for users has the metrics and the bound.
func TestDocumented(t *testing.T) {
	content, err := os.ReadFile("../../docs/reference/custom-metrics-api.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(string(content), ",", "")
	MetricSet.Register(func(all ...metrics.Registerable) {
		for _, m := range all {
			if !strings.Contains(page, "`"+m.FQName()+"`") {
				t.Errorf("%s is not in the page", m.FQName())
			}
		}
	})
	if !strings.Contains(page, "at most "+strconv.Itoa(MaxDiscovered)+" metrics") {
		t.Error("the page does not say how many metrics discovery lists")
	}
}
