// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"strings"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// TestDocumented checks that docs/concepts/resource-metrics.md has all reasons.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/concepts/resource-metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for reason := skipNone + 1; reason < skipReasons; reason++ {
		want = append(want, reason.String())
	}
	for _, reason := range []v1alpha1.ScrapeReason{
		v1alpha1.ScrapeNoAddress, v1alpha1.ScrapeConnectionFailed, v1alpha1.ScrapeTimeout,
		v1alpha1.ScrapeCertificateUntrusted, v1alpha1.ScrapeCertificateChanged, v1alpha1.ScrapeNoToken, v1alpha1.ScrapeUnauthorized,
		v1alpha1.ScrapeForbidden, v1alpha1.ScrapeBadStatus, v1alpha1.ScrapeBodyTooLarge, v1alpha1.ScrapeMalformedBody,
		v1alpha1.ScrapeStaleSamples, v1alpha1.ScrapePodsWithoutMetrics,
	} {
		want = append(want, string(reason))
	}
	for _, name := range want {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("%s is not in the page", name)
		}
	}
}
