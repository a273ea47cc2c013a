// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

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
		p := sources[i].Prometheus
		if p == nil {
			continue
		}
		addKey(p.TLS.CA)
		add(p.TLS.ClientCertificate)
		addKey(p.Authentication.BearerToken)
		add(p.Authentication.Basic)
		if p.Authentication.OAuth2 != nil {
			add(&p.Authentication.OAuth2.Client)
		}
		for j := range p.Headers {
			addKey(p.Headers[j].ValueFrom)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SourceConfigMaps returns the names of the ConfigMaps that sources use, with that of
// serving.caConfigMap unless extra is nil, sorted, without duplicates.
func SourceConfigMaps(sources []SourceSpec, extra *ConfigMapKeyReference) []string {
	var names []string
	if extra != nil && len(sources) > 0 {
		names = append(names, extra.Name)
	}
	for i := range sources {
		if p := sources[i].Prometheus; p != nil && p.TLS.CAConfigMap != nil && p.TLS.CAConfigMap.Name != "" {
			names = append(names, p.TLS.CAConfigMap.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SourceAudiences returns the audiences of the tokens of ServiceAccounts that sources use,
// sorted, without duplicates.
func SourceAudiences(sources []SourceSpec) []string {
	var audiences []string
	for i := range sources {
		if p := sources[i].Prometheus; p != nil && p.Authentication.ServiceAccountToken != nil {
			audiences = append(audiences, p.Authentication.ServiceAccountToken.Audience)
		}
	}
	slices.Sort(audiences)
	return slices.Compact(audiences)
}
