// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// cert-manager's annotations have the issuer as the Certificate names it: an empty kind or group is the default.
func TestIssuedBy(t *testing.T) {
	t.Parallel()
	annotations := func(name, kind, group string) map[string]string {
		return map[string]string{issuerNameAnnotation: name, issuerKindAnnotation: kind, issuerGroupAnnotation: group}
	}
	ours := v1alpha1.IssuerReference{Name: "ours", Kind: "Issuer", Group: "cert-manager.io"}
	cases := map[string]struct {
		annotations map[string]string
		issuer      v1alpha1.IssuerReference
		want        bool
	}{
		"the issuer":                {annotations("ours", "Issuer", "cert-manager.io"), ours, true},
		"defaults in the Secret":    {annotations("ours", "", ""), ours, true},
		"defaults in the reference": {annotations("ours", "Issuer", "cert-manager.io"), v1alpha1.IssuerReference{Name: "ours"}, true},
		"not recorded":              {nil, ours, true},
		"another name":              {annotations("theirs", "Issuer", "cert-manager.io"), ours, false},
		"another kind":              {annotations("ours", "ClusterIssuer", "cert-manager.io"), ours, false},
		"another group":             {annotations("ours", "Issuer", "example.com"), ours, false},
		"a temporary certificate":   {annotations("", "", ""), ours, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := &corev1.Secret{}
			secret.Annotations = tc.annotations
			if got := issuedBy(secret, tc.issuer); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
