// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A reference without a name would stall the backend over a Secret "".
func TestPullSecretsAreNamed(t *testing.T) {
	cases := map[string]bool{"[]": false, "[{name: pull}]": false, "[{}]": true, `[{name: ""}]`: true, "[{name: pull}, {}]": true}
	for secrets, refused := range cases {
		t.Run(secrets, func(t *testing.T) {
			backend := manifest(t, "valid", "{serving: {imagePullSecrets: "+secrets+"}, resourceMetrics: {}}")
			err := suite.admin.Create(t.Context(), backend, client.DryRunAll, client.FieldValidation("Strict"))
			if refused != (err != nil) || refused && !strings.Contains(err.Error(), "each of serving.imagePullSecrets must name a Secret") {
				t.Errorf("got %v, want refused %t", err, refused)
			}
		})
	}
}
