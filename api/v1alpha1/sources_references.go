// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"slices"
	"strings"
)

// SourceSecrets returns the names of the Secrets that sources use, sorted, without
// duplicates.
func SourceSecrets(sources []SourceSpec) []string {
	var names []string
	add := func(reference *SecretReference) {
		if reference != nil && reference.Name != "" {
			names = append(names, reference.Name)
		}
	}
	addKey := func(reference *SecretKeyReference) {
		if reference != nil {
			add(&reference.SecretReference)
		}
	}
	for i := range sources {
		if tls := sources[i].tls(); tls != nil {
			addKey(tls.CASecretKeyRef)
			add(tls.ClientCertificateSecretRef)
		}
		p := sources[i].Prometheus
		if p == nil {
			continue
		}
		addKey(p.Authentication.BearerTokenSecretKeyRef)
		add(p.Authentication.BasicAuthSecretRef)
		if p.Authentication.OAuth2 != nil {
			add(&p.Authentication.OAuth2.CredentialsSecretRef)
		}
		for j := range p.Headers {
			addKey(p.Headers[j].ValueSecretKeyRef)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SourceConfigMaps returns the names of the ConfigMaps that sources use, with that of
// serving.caConfigMapKeyRef unless extra is nil, sorted, without duplicates.
func SourceConfigMaps(sources []SourceSpec, extra *ConfigMapKeyReference) []string {
	var names []string
	if extra != nil && len(sources) > 0 {
		names = append(names, extra.Name)
	}
	for i := range sources {
		if tls := sources[i].tls(); tls != nil && tls.CAConfigMapKeyRef != nil && tls.CAConfigMapKeyRef.Name != "" {
			names = append(names, tls.CAConfigMapKeyRef.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SourceToken is one of the tokens of ServiceAccounts that sources get.
// +kubebuilder:object:generate=false
type SourceToken struct {
	// AccountSuffix follows the name of the Service of serving in that of the ServiceAccount.
	AccountSuffix string
	// Audience of the token; empty for kube-apiserver.
	Audience string
}

// SourceTokens returns the tokens of ServiceAccounts that sources use, sorted, without duplicates.
func SourceTokens(sources []SourceSpec) []SourceToken {
	var tokens []SourceToken
	for i := range sources {
		if p := sources[i].Prometheus; p != nil && p.Authentication.ServiceAccountToken != nil {
			tokens = append(tokens, SourceToken{SourceAccountSuffix, p.Authentication.ServiceAccountToken.Audience})
		}
		if sources[i].MetricsAPI != nil {
			tokens = append(tokens, SourceToken{AccountSuffix: MetricsAPIAccountSuffix})
		}
	}
	slices.SortFunc(tokens, func(a, b SourceToken) int {
		return cmp.Or(strings.Compare(a.AccountSuffix, b.AccountSuffix), strings.Compare(a.Audience, b.Audience))
	})
	return slices.Compact(tokens)
}

// tls returns how the server of a source is verified; nil for a source of no known kind.
func (s *SourceSpec) tls() *SourceTLS {
	switch {
	case s.Prometheus != nil:
		return &s.Prometheus.TLS
	case s.MetricsAPI != nil:
		return &s.MetricsAPI.TLS
	}
	return nil
}
