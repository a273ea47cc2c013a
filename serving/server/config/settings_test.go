// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// comparedByText compares selectors by their text.
var comparedByText = cmp.Options{
	cmpopts.IgnoreFields(Settings{}, "Spec"),
	cmp.Transformer("selector", func(s labels.Selector) string { return s.String() }),
}

func defaultedSettings(change func(*Settings)) Settings {
	s := Settings{
		MaxAge:          90 * time.Second,
		ResourceMetrics: true,
		Kubelet: kubelet.Settings{
			Interval:      15 * time.Second,
			Timeout:       10 * time.Second,
			MaxConcurrent: 64,
			MaxBodySize:   16 << 20,
			AddressTypes: []corev1.NodeAddressType{
				corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS,
			},
			NodeSelector: labels.Everything(),
			TLS:          v1alpha1.KubeletTLSVerifyOrPin,
		},
		Watch: WatchSettings{
			Enabled: true,
			Limits:  stream.Limits{Connections: 10000, PerUser: 1000, OpensPerSecond: 100, OpensBurst: 1000},
			Stream:  stream.Settings{BookmarkInterval: time.Minute, MaxAge: time.Hour, StallTimeout: time.Minute},
		},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func TestSettingsFrom(t *testing.T) {
	bundle, _, err := certutil.GenerateSelfSignedCertKey("kubelet", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		spec  *v1alpha1.ResourceMetricsSpec
		watch v1alpha1.WatchSpec
		want  Settings
		// wantErr lists what the error must mention.
		wantErr []string
	}{
		"no resource metrics: defaults": {want: defaultedSettings(nil)},
		"empty: defaults":               {spec: &v1alpha1.ResourceMetricsSpec{}, want: defaultedSettings(nil)},
		"everything set": {
			spec: &v1alpha1.ResourceMetricsSpec{
				MaxSampleAge: duration(2 * time.Minute),
				Scrape: v1alpha1.ScrapeSpec{
					Interval:        duration(30 * time.Second),
					Timeout:         duration(5 * time.Second),
					MaxConcurrent:   ptr.To[int32](8),
					MaxResponseSize: "512Ki",
					AddressTypes:    []corev1.NodeAddressType{corev1.NodeHostName},
					Port:            ptr.To[int32](4194),
					NodeSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"type": "real"}},
				},
				KubeletTLS: v1alpha1.KubeletTLSSpec{CABundle: bundle},
			},
			want: defaultedSettings(func(s *Settings) {
				s.MaxAge = 2 * time.Minute
				s.Kubelet.Interval, s.Kubelet.Timeout = 30*time.Second, 5*time.Second
				s.Kubelet.MaxConcurrent, s.Kubelet.MaxBodySize, s.Kubelet.Port = 8, 512<<10, 4194
				s.Kubelet.AddressTypes = []corev1.NodeAddressType{corev1.NodeHostName}
				s.Kubelet.NodeSelector = labels.SelectorFromSet(labels.Set{"type": "real"})
				s.Kubelet.CABundle = bundle
			}),
		},
		"pinning": {
			spec: &v1alpha1.ResourceMetricsSpec{KubeletTLS: v1alpha1.KubeletTLSSpec{Mode: v1alpha1.KubeletTLSPinOnFirstUse}},
			want: defaultedSettings(func(s *Settings) { s.Kubelet.TLS = v1alpha1.KubeletTLSPinOnFirstUse }),
		},
		"an empty selector selects all nodes": {
			spec: &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{NodeSelector: &metav1.LabelSelector{}}},
			want: defaultedSettings(nil),
		},
		"resource rules that cannot be used: kubelets are asked": {
			spec: &v1alpha1.ResourceMetricsSpec{Rules: &v1alpha1.ResourceRules{}},
			want: defaultedSettings(nil),
		},
		"no watch": {
			watch: v1alpha1.WatchSpec{Mode: v1alpha1.WatchDisabled},
			want:  defaultedSettings(func(s *Settings) { s.Watch.Enabled = false }),
		},
		"everything of watches set": {
			watch: v1alpha1.WatchSpec{
				Mode: v1alpha1.WatchEnabled, MaxWatches: ptr.To[int32](50), MaxWatchesPerUser: ptr.To[int32](20),
				MaxOpensPerSecondPerUser: ptr.To[int32](5), BookmarkInterval: duration(10 * time.Second), MaxDuration: duration(5 * time.Minute),
			},
			want: defaultedSettings(func(s *Settings) {
				s.Watch.Limits = stream.Limits{Connections: 50, PerUser: 20, OpensPerSecond: 5, OpensBurst: 20}
				s.Watch.Stream.BookmarkInterval, s.Watch.Stream.MaxAge = 10*time.Second, 5*time.Minute
			}),
		},
		"a burst is at least what comes in a second": {
			watch: v1alpha1.WatchSpec{MaxWatchesPerUser: ptr.To[int32](20), MaxOpensPerSecondPerUser: ptr.To[int32](30)},
			want: defaultedSettings(func(s *Settings) {
				s.Watch.Limits.PerUser, s.Watch.Limits.OpensPerSecond, s.Watch.Limits.OpensBurst = 20, 30, 30
			}),
		},
		"a body size that is no quantity": {
			spec:    &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{MaxResponseSize: "16 megabytes"}},
			wantErr: []string{"spec.resourceMetrics.scrape.maxResponseSize"},
		},
		"a selector with a bad label": {
			spec: &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{NodeSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"no spaces": "x"},
			}}},
			wantErr: []string{"nodeSelector"},
		},
		"a bundle without certificates": {
			spec:    &v1alpha1.ResourceMetricsSpec{KubeletTLS: v1alpha1.KubeletTLSSpec{CABundle: []byte("not PEM")}},
			wantErr: []string{"kubeletTLS.caBundle", "PEM"},
		},
		"all wrong at once: each field is named": {
			spec: &v1alpha1.ResourceMetricsSpec{
				Scrape:     v1alpha1.ScrapeSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no spaces": "x"}}},
				KubeletTLS: v1alpha1.KubeletTLSSpec{CABundle: []byte("not PEM")},
			},
			wantErr: []string{"scrape.nodeSelector", "kubeletTLS.caBundle"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			given := &v1alpha1.MetricsBackendSpec{ResourceMetrics: tc.spec, Watch: tc.watch}
			if tc.spec == nil {
				tc.want.Kubelet.TLS = v1alpha1.KubeletTLSVerify
			}
			before := given.DeepCopy()
			got, err := SettingsFrom(given)
			if diff := cmp.Diff(before, given); diff != "" {
				t.Errorf("the spec was changed (-before +after):\n%s", diff)
			}
			if len(tc.wantErr) > 0 {
				if err == nil {
					t.Fatalf("no error, want one that mentions %q", tc.wantErr)
				}
				for _, part := range tc.wantErr {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("error %q does not mention %q", err, part)
					}
				}
				return
			}
			if err != nil {
				t.Fatalf("SettingsFrom: %v", err)
			}
			if diff := cmp.Diff(tc.want, got, comparedByText); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSettingsOf: whether resource metrics are collected.
func TestSettingsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		spec *v1alpha1.ResourceMetricsSpec
		// registered are the APIServices in the status.
		registered []string
		want       bool
	}{
		"not wanted":                       {},
		"wanted":                           {spec: &v1alpha1.ResourceMetricsSpec{}, want: true},
		"other groups":                     {registered: []string{"v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"}},
		"no longer wanted, but registered": {registered: []string{"v1beta1.external.metrics.k8s.io", "v1.metrics.k8s.io"}, want: true},
		"wanted and registered":            {spec: &v1alpha1.ResourceMetricsSpec{}, registered: []string{"v1.metrics.k8s.io"}, want: true},
		"a name that is no APIService's":   {registered: []string{"metrics.k8s.io"}},
	} {
		t.Run(name, func(t *testing.T) {
			backend := backendWith(1, tc.spec)
			for _, registered := range tc.registered {
				backend.Status.APIServices = append(backend.Status.APIServices, v1alpha1.APIServiceStatus{Name: registered})
			}
			got, err := settingsOf(backend)
			if err != nil {
				t.Fatal(err)
			}
			if scrapes := got.Kubelet.NodeSelector.Empty(); got.ResourceMetrics != tc.want || scrapes != tc.want {
				t.Errorf("resource metrics: %t, kubelets scraped: %t, want %t", got.ResourceMetrics, scrapes, tc.want)
			}
		})
	}
}

// TestSettingsOfVerified: the status says whether a kubelet of the cluster was ever verified.
func TestSettingsOfVerified(t *testing.T) {
	for _, verified := range []bool{false, true} {
		backend := backendWith(1, &v1alpha1.ResourceMetricsSpec{})
		backend.Status.KubeletsVerified = verified
		got, err := settingsOf(backend)
		if err != nil || got.Kubelet.Verified != verified {
			t.Errorf("verified %t, %v, want %t", got.Kubelet.Verified, err, verified)
		}
	}
}
