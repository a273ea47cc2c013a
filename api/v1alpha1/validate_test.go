// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
)

func seconds(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Second}
}

func TestValidate(t *testing.T) {
	bundle, _, err := certutil.GenerateSelfSignedCertKey("kubelet", nil, nil)
	if err != nil {
		t.Fatalf("generate a certificate: %v", err)
	}
	corrupt := []byte(strings.Replace(string(bundle), "MII", "AAA", 1))
	selector := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	labels := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	tests := map[string]struct {
		change func(*ResourceMetricsSpec)
		// want lists the fields that are wrong, and messages what the errors say.
		want     []string
		messages []string
	}{
		"defaults": {change: func(*ResourceMetricsSpec) {}},

		"one version":     {change: func(rm *ResourceMetricsSpec) { rm.Versions = []ResourceMetricsVersion{"v1"} }},
		"unknown version": {change: func(rm *ResourceMetricsSpec) { rm.Versions = []ResourceMetricsVersion{"v2"} }, want: []string{"versions"}, messages: []string{`supported values: "v1", "v1beta1"`}},
		"version twice":   {change: func(rm *ResourceMetricsSpec) { rm.Versions = []ResourceMetricsVersion{"v1", "v1"} }, want: []string{"versions[1]"}},

		"maxAge is a margin over the interval": {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Interval, rm.MaxAge = seconds(20), seconds(50) }},
		"maxAge is less over the interval": {
			change: func(rm *ResourceMetricsSpec) { rm.Scrape.Interval, rm.MaxAge = seconds(20), seconds(49) }, want: []string{"maxAge"},
			messages: []string{"must be at least 30s longer than scrape.interval", "raise maxAge, whose default is 1m30s, to 50s or more"},
		},
		"maxAge is the interval":                    {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Interval, rm.MaxAge = seconds(60), seconds(60) }, want: []string{"maxAge"}},
		"an interval that the default maxAge fits":  {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Interval = seconds(60) }},
		"an interval that the default maxAge fails": {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Interval = seconds(61) }, want: []string{"maxAge"}},
		"longest maxAge":                            {change: func(rm *ResourceMetricsSpec) { rm.MaxAge = seconds(3600) }},
		"too long a maxAge":                         {change: func(rm *ResourceMetricsSpec) { rm.MaxAge = seconds(3601) }, want: []string{"maxAge"}},

		"shortest interval":     {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Interval, rm.Scrape.Timeout = seconds(1), seconds(1) }},
		"too short an interval": {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Interval, rm.Scrape.Timeout = seconds(0), seconds(0) }, want: []string{"scrape.interval", "scrape.timeout"}},
		"too long an interval":  {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Interval, rm.MaxAge = seconds(601), seconds(3600) }, want: []string{"scrape.interval"}},
		"timeout over interval": {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Timeout = seconds(16) }, want: []string{"scrape.timeout"}},

		"most concurrency":     {change: func(rm *ResourceMetricsSpec) { rm.Scrape.MaxConcurrent = ptr.To(MaxMaxConcurrent) }},
		"too much concurrency": {change: func(rm *ResourceMetricsSpec) { rm.Scrape.MaxConcurrent = ptr.To(MaxMaxConcurrent + 1) }, want: []string{"scrape.maxConcurrent"}},
		"no concurrency":       {change: func(rm *ResourceMetricsSpec) { rm.Scrape.MaxConcurrent = ptr.To[int32](0) }, want: []string{"scrape.maxConcurrent"}},

		"largest body":            {change: func(rm *ResourceMetricsSpec) { rm.Scrape.MaxBodySize = "256Mi" }},
		"body in bytes":           {change: func(rm *ResourceMetricsSpec) { rm.Scrape.MaxBodySize = "1000" }},
		"too large a body":        {change: func(rm *ResourceMetricsSpec) { rm.Scrape.MaxBodySize = "257Mi" }, want: []string{"scrape.maxBodySize"}, messages: []string{"must be at most 256Mi"}},
		"much too large a body":   {change: func(rm *ResourceMetricsSpec) { rm.Scrape.MaxBodySize = "999999999Mi" }, want: []string{"scrape.maxBodySize"}},
		"body of another pattern": {change: func(rm *ResourceMetricsSpec) { rm.Scrape.MaxBodySize = "1e6" }, want: []string{"scrape.maxBodySize"}},
		"no body":                 {change: func(rm *ResourceMetricsSpec) { rm.Scrape.MaxBodySize = "0" }, want: []string{"scrape.maxBodySize"}},

		"unknown address type":    {change: func(rm *ResourceMetricsSpec) { rm.Scrape.AddressTypes = []corev1.NodeAddressType{"Carrier"} }, want: []string{"scrape.addressTypes"}},
		"too many address types":  {change: func(rm *ResourceMetricsSpec) { rm.Scrape.AddressTypes = append(DefaultAddressTypes(), "Hostname") }, want: []string{"scrape.addressTypes"}},
		"port":                    {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Port = ptr.To[int32](65535) }},
		"port too high":           {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Port = ptr.To[int32](65536) }, want: []string{"scrape.port"}},
		"port of zero":            {change: func(rm *ResourceMetricsSpec) { rm.Scrape.Port = ptr.To[int32](0) }, want: []string{"scrape.port"}},
		"selector":                {change: func(rm *ResourceMetricsSpec) { rm.Scrape.NodeSelector = selector("type", "NotIn", "virtual") }},
		"empty selector":          {change: func(rm *ResourceMetricsSpec) { rm.Scrape.NodeSelector = &metav1.LabelSelector{} }},
		"unknown operator":        {change: func(rm *ResourceMetricsSpec) { rm.Scrape.NodeSelector = selector("type", "Foo") }, want: []string{"scrape.nodeSelector.matchExpressions[0].operator"}},
		"operator without values": {change: func(rm *ResourceMetricsSpec) { rm.Scrape.NodeSelector = selector("type", "In") }, want: []string{"scrape.nodeSelector.matchExpressions[0].values"}},
		"malformed key":           {change: func(rm *ResourceMetricsSpec) { rm.Scrape.NodeSelector = labels("a b", "c") }, want: []string{"scrape.nodeSelector.matchLabels"}},
		"malformed value":         {change: func(rm *ResourceMetricsSpec) { rm.Scrape.NodeSelector = labels("a", "c d") }, want: []string{"scrape.nodeSelector.matchLabels"}},
		"malformed value in a set": {
			change: func(rm *ResourceMetricsSpec) { rm.Scrape.NodeSelector = selector("type", "In", "c d") },
			want:   []string{"scrape.nodeSelector.matchExpressions[0].values[0]"},
		},

		"CA":                 {change: func(rm *ResourceMetricsSpec) { rm.KubeletTLS.CABundle = bundle }},
		"CA without PEM":     {change: func(rm *ResourceMetricsSpec) { rm.KubeletTLS.CABundle = []byte("A") }, want: []string{"kubeletTLS.caBundle"}, messages: []string{"certificates in PEM"}},
		"CA that is corrupt": {change: func(rm *ResourceMetricsSpec) { rm.KubeletTLS.CABundle = corrupt }, want: []string{"kubeletTLS.caBundle"}},
		"CA with Skip": {
			change: func(rm *ResourceMetricsSpec) { rm.KubeletTLS = KubeletTLSSpec{Mode: KubeletTLSSkip, CABundle: bundle} },
			want:   []string{"kubeletTLS.caBundle"}, messages: []string{"with modes Verify and VerifyOrPin only"},
		},
		"CA with Verify": {change: func(rm *ResourceMetricsSpec) {
			rm.KubeletTLS = KubeletTLSSpec{Mode: KubeletTLSVerify, CABundle: bundle}
		}},
		"unknown mode": {change: func(rm *ResourceMetricsSpec) { rm.KubeletTLS.Mode = "Hope" }, want: []string{"kubeletTLS.mode"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &MetricsBackendSpec{ResourceMetrics: &ResourceMetricsSpec{}}
			tc.change(spec.ResourceMetrics)
			SetDefaults(spec)
			errs := Validate(spec)
			var got []string
			for _, err := range errs {
				got = append(got, strings.TrimPrefix(err.Field, "spec.resourceMetrics."))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s\n%v", diff, errs.ToAggregate())
			}
			for _, message := range tc.messages {
				if !strings.Contains(errs.ToAggregate().Error(), message) {
					t.Errorf("errors %q, want %q in them", errs.ToAggregate(), message)
				}
			}
		})
	}
}

func TestValidateWithoutResourceMetrics(t *testing.T) {
	spec := &MetricsBackendSpec{}
	SetDefaults(spec)
	if errs := Validate(spec); len(errs) > 0 {
		t.Errorf("errors %v, want none", errs)
	}
}

func TestValidateWatch(t *testing.T) {
	tests := map[string]struct {
		watch WatchSpec
		// want are the errors.
		want []string
	}{
		"defaults": {},
		"disabled": {watch: WatchSpec{Mode: WatchDisabled}},
		"least of all": {watch: WatchSpec{
			MaxConnections: ptr.To[int32](1), MaxConnectionsPerUser: ptr.To[int32](1), MaxOpensPerSecondPerUser: ptr.To[int32](1),
			BookmarkInterval: seconds(5), MaxAge: seconds(60),
		}},
		"most of all": {watch: WatchSpec{
			MaxConnections: ptr.To(MaxMaxConnections), MaxConnectionsPerUser: ptr.To(MaxMaxConnections),
			MaxOpensPerSecondPerUser: ptr.To(MaxMaxOpensPerSecondPerUser), BookmarkInterval: seconds(600), MaxAge: seconds(24 * 3600),
		}},
		"less than the least": {
			watch: WatchSpec{
				Mode: "Maybe", MaxConnections: ptr.To[int32](0), MaxConnectionsPerUser: ptr.To[int32](-1), MaxOpensPerSecondPerUser: ptr.To[int32](0),
				BookmarkInterval: seconds(4), MaxAge: seconds(59),
			},
			want: []string{
				`spec.watch.mode: Unsupported value: "Maybe": supported values: "Enabled", "Disabled"`,
				"spec.watch.maxConnections: Invalid value: 0: must be between 1 and 100000",
				"spec.watch.maxConnectionsPerUser: Invalid value: -1: must be between 1 and 100000",
				"spec.watch.maxOpensPerSecondPerUser: Invalid value: 0: must be between 1 and 10000",
				`spec.watch.bookmarkInterval: Invalid value: "4s": must be between 5s and 10m0s`,
				`spec.watch.maxAge: Invalid value: "59s": must be between 1m0s and 24h0m0s`,
			},
		},
		"more than the most": {
			watch: WatchSpec{
				MaxConnections: ptr.To(MaxMaxConnections + 1), MaxConnectionsPerUser: ptr.To(MaxMaxConnections + 1),
				MaxOpensPerSecondPerUser: ptr.To(MaxMaxOpensPerSecondPerUser + 1), BookmarkInterval: seconds(601), MaxAge: seconds(24*3600 + 1),
			},
			want: []string{
				"spec.watch.maxConnections: Invalid value: 100001: must be between 1 and 100000",
				"spec.watch.maxConnectionsPerUser: Invalid value: 100001: must be between 1 and 100000",
				"spec.watch.maxOpensPerSecondPerUser: Invalid value: 10001: must be between 1 and 10000",
				`spec.watch.bookmarkInterval: Invalid value: "10m1s": must be between 5s and 10m0s`,
				`spec.watch.maxAge: Invalid value: "24h0m1s": must be between 1m0s and 24h0m0s`,
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &MetricsBackendSpec{Watch: tc.watch}
			SetDefaults(spec)
			var got []string
			for _, err := range Validate(spec) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// The errors end in a log and in a status: a bundle would fill both.
func TestValidateDoesNotRepeatTheBundle(t *testing.T) {
	spec := &MetricsBackendSpec{ResourceMetrics: &ResourceMetricsSpec{KubeletTLS: KubeletTLSSpec{CABundle: []byte("private material")}}}
	SetDefaults(spec)
	if err := Validate(spec).ToAggregate(); err == nil || strings.Contains(err.Error(), "private material") {
		t.Errorf("error %v, want one without the bundle", err)
	}
}
