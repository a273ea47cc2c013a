// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

func mustApply(t *testing.T, s *Source, settings Settings) {
	t.Helper()
	if err := s.Apply(settings); err != nil {
		t.Fatal(err)
	}
}

func TestInvalidSettings(t *testing.T) {
	ca := newAuthority(t)
	tests := map[string]struct {
		change func(*Settings)
		want   string
	}{
		"interval":      {func(s *Settings) { s.Interval = 0 }, "scrape interval"},
		"timeout":       {func(s *Settings) { s.Timeout = -1 }, "scrape timeout"},
		"concurrency":   {func(s *Settings) { s.MaxConcurrent = 0 }, "concurrent scrapes"},
		"body size":     {func(s *Settings) { s.MaxBodySize = 0 }, "body size"},
		"port":          {func(s *Settings) { s.Port = 65536 }, "kubelet port"},
		"address types": {func(s *Settings) { s.AddressTypes = nil }, "address types"},
		"mode":          {func(s *Settings) { s.TLS = "Maybe" }, `"Maybe"`},
		"CA, no PEM":    {func(s *Settings) { s.CABundle = []byte("x") }, "kubeletTLS.caBundle"},
		"CA, a bad one": {func(s *Settings) {
			s.CABundle = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}, "kubeletTLS.caBundle"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestSource(t, clock.RealClock{}, ca.pem, nil, testSettings())
			before := s.settings
			bad := testSettings()
			tt.change(&bad)
			if err := s.Apply(bad); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Apply() = %v, want an error about %s", err, tt.want)
			}
			if s.settings != before {
				t.Error("the old settings did not stay")
			}
			if _, err := NewSource(Options{Store: s.store, Clock: s.clock, DefaultCA: ca.pem}, bad); err == nil {
				t.Error("NewSource() took them")
			}
		})
	}
}

func TestInvalidOptions(t *testing.T) {
	store := samplestore.NewStore(clock.RealClock{}, time.Minute)
	ca := newAuthority(t)
	tests := map[string]struct {
		options Options
		want    string
	}{
		"no store":        {Options{Clock: clock.RealClock{}, DefaultCA: ca.pem}, "store"},
		"no clock":        {Options{Store: store, DefaultCA: ca.pem}, "clock"},
		"a bad CA":        {Options{Store: store, Clock: clock.RealClock{}, DefaultCA: []byte("x")}, "the cluster's CA"},
		"two credentials": {Options{Store: store, Clock: clock.RealClock{}, DefaultCA: ca.pem, RestConfig: &rest.Config{BearerToken: "a", Username: "b"}}, "credentials"},
		"a bad key": {Options{Store: store, Clock: clock.RealClock{}, DefaultCA: ca.pem, RestConfig: &rest.Config{
			TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x"), KeyData: []byte("y")},
		}}, "client certificate"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := NewSource(tt.options, testSettings()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("NewSource() = %v, want an error about %s", err, tt.want)
			}
		})
	}
}
