// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func secretKeyNamed(name, key string) *SecretKeyReference {
	return &SecretKeyReference{SecretReference: SecretReference{Name: name}, Key: key}
}

func TestSourceConfigMaps(t *testing.T) {
	bundle := func(name string) *PrometheusSource {
		return &PrometheusSource{TLS: SourceTLS{CAConfigMapKeyRef: &ConfigMapKeyReference{Name: name, Key: "ca.crt"}}}
	}
	adapter := SourceSpec{Name: "adapter", MetricsAPI: &MetricsAPISource{TLS: bundle("api").TLS}}
	sources := []SourceSpec{{Name: "none"}, adapter, {Name: "b", Prometheus: bundle("b")}, {Name: "a", Prometheus: bundle("a")}, {Name: "again", Prometheus: bundle("b")}, {Name: "Secret", Prometheus: &PrometheusSource{TLS: SourceTLS{CASecretKeyRef: secretKeyNamed("c", "ca.crt")}}}}
	extra := &ConfigMapKeyReference{Name: "extra", Key: "ca.crt"}
	got := [][]string{SourceConfigMaps(sources, nil), SourceConfigMaps(sources, extra), SourceConfigMaps(nil, extra)}
	if diff := cmp.Diff([][]string{{"a", "api", "b"}, {"a", "api", "b", "extra"}, nil}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSourceSecrets(t *testing.T) {
	sources := []SourceSpec{
		{Name: "none"},
		{Name: "all", Prometheus: &PrometheusSource{
			TLS:            SourceTLS{CASecretKeyRef: secretKeyNamed("z", "ca.crt"), ClientCertificateSecretRef: &SecretReference{Name: "client"}},
			Authentication: SourceAuthentication{BasicAuthSecretRef: &SecretReference{Name: "basic"}},
			Headers:        []SourceHeader{{Name: "A", Value: "b"}, {Name: "B", ValueSecretKeyRef: secretKeyNamed("z", "header")}},
		}},
		{Name: "token", Prometheus: &PrometheusSource{Authentication: SourceAuthentication{BearerTokenSecretKeyRef: secretKeyNamed("a", "token")}}},
		{Name: "keda", MetricsAPI: &MetricsAPISource{TLS: SourceTLS{CASecretKeyRef: secretKeyNamed("kedaorg-certs", "ca.crt"), ClientCertificateSecretRef: &SecretReference{Name: "client"}}}},
	}
	if diff := cmp.Diff([]string{"a", "basic", "client", "kedaorg-certs", "z"}, SourceSecrets(sources)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := SourceSecrets(sources[:1]); len(got) > 0 {
		t.Errorf("Secrets %v of a source without any", got)
	}
}
