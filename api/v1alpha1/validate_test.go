// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
)

// What the schema of the CRD cannot refuse: test/integration/operator has its rules.
func TestValidate(t *testing.T) {
	bundle, _, err := certutil.GenerateSelfSignedCertKey("kubelet", nil, nil)
	if err != nil {
		t.Fatalf("generate a certificate: %v", err)
	}
	corrupt := []byte(strings.Replace(string(bundle), "MII", "AAA", 1))
	labels := func(key, value string) func(*MetricsBackendSpec) {
		return func(s *MetricsBackendSpec) {
			s.ResourceMetrics.Scrape.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
		}
	}
	kubelets := func(bundle []byte) func(*MetricsBackendSpec) {
		return func(s *MetricsBackendSpec) { s.ResourceMetrics.KubeletTLS.CABundle = bundle }
	}
	existing := func(bundle []byte) func(*MetricsBackendSpec) {
		return func(s *MetricsBackendSpec) { s.Existing = &ExistingSpec{CABundle: bundle} }
	}
	tests := map[string]struct {
		change func(*MetricsBackendSpec)
		// want is the field that is wrong, and message what the error says.
		want, message string
	}{
		"defaults":              {change: func(*MetricsBackendSpec) {}},
		"no resource metrics":   {change: func(s *MetricsBackendSpec) { s.ResourceMetrics = nil }},
		"selector":              {change: labels("type", "virtual")},
		"malformed key":         {labels("a b", "c"), "spec.resourceMetrics.scrape.nodeSelector.matchLabels", "a b"},
		"malformed value":       {labels("a", "c d"), "spec.resourceMetrics.scrape.nodeSelector.matchLabels", "c d"},
		"CA":                    {change: kubelets(bundle)},
		"CA without PEM":        {kubelets([]byte("A")), "spec.resourceMetrics.kubeletTLS.caBundle", "certificates in PEM"},
		"CA that is corrupt":    {kubelets(corrupt), "spec.resourceMetrics.kubeletTLS.caBundle", "certificates in PEM"},
		"existing, verified":    {change: existing(bundle)},
		"existing, not":         {change: existing(nil)},
		"existing, without PEM": {existing(corrupt), "spec.existing.caBundle", "certificates in PEM"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &MetricsBackendSpec{ResourceMetrics: &ResourceMetricsSpec{}}
			tc.change(spec)
			SetDefaults(spec)
			errs := Validate(spec)
			if tc.want == "" && len(errs) == 0 {
				return
			}
			if len(errs) != 1 || errs[0].Field != tc.want || !strings.Contains(errs[0].Error(), tc.message) || strings.Contains(errs[0].Error(), "BEGIN") {
				t.Errorf("errors %v, want one of %q with %q", errs, tc.want, tc.message)
			}
		})
	}
}

func TestRuleInterval(t *testing.T) {
	tests := map[RuleInterval]struct {
		want time.Duration
		err  string
	}{
		"":      {want: 15 * time.Second},
		"1s":    {want: time.Second},
		"1h":    {want: time.Hour},
		"1m30s": {want: 90 * time.Second},
		"61m":   {err: `"61m" must be a duration such as 30s, between 1s and 1h0m0s`},
		"0s":    {err: "must be a duration"},
		"-1s":   {err: "must be a duration"},
		"soon":  {err: `"soon" must be a duration`},
		"1d":    {err: "must be a duration"},
	}
	for interval, tc := range tests {
		got, err := interval.Duration(15 * time.Second)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q is %s, %v, want %s, %q", interval, got, err, tc.want, tc.err)
		}
	}
}
