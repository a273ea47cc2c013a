// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// TestWatchMetricsDocumented checks that the page for administrators has all
// metrics, endings and labels, and that its queries ask for none that is not there.
func TestWatchMetricsDocumented(t *testing.T) {
	content, err := os.ReadFile("../../docs/watch-metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	served := map[string]bool{}
	collect := func(all ...metrics.Registerable) {
		for _, m := range all {
			served[m.FQName()] = true
		}
	}
	stream.RegisterMetrics(collect)
	resourcemetrics.RegisterMetrics(collect)
	for name := range served {
		if !strings.Contains(page, "| `"+name) {
			t.Errorf("%s is not in the table of metrics", name)
		}
	}
	kubelet.RegisterMetrics(collect)
	for _, name := range regexp.MustCompile(`metrics_(api|backend)_[a-z_]+`).FindAllString(page, -1) {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !served[name] && !served[base] {
			t.Errorf("%s is no metric", name)
		}
	}
	for _, ending := range []stream.Ending{
		stream.ClientClosed, stream.TimedOut, stream.AgedOut, stream.ShutDown, stream.Disabled, stream.Revoked,
		stream.Stalled, stream.WriteFailed, stream.Abandoned,
	} {
		if !strings.Contains(page, "| `"+string(ending)+"` |") {
			t.Errorf("%s is not in the table of reasons", ending)
		}
	}
}
