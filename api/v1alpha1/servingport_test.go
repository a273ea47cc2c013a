// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"

	"k8s.io/utils/ptr"
)

// The default port depends on hostNetwork. A port that is set, or that an older release
// stored as its default, stays.
func TestServingPort(t *testing.T) {
	cases := map[string]struct {
		serving ServingSpec
		want    int32
		// endpoints are the words for it in messages.
		endpoints string
	}{
		"pod network":                 {ServingSpec{}, 10250, "port 10250 of the serving pods"},
		"nodes' network":              {ServingSpec{HostNetwork: true}, 10443, "port 10443 of the nodes with serving pods"},
		"another port":                {ServingSpec{Port: ptr.To[int32](10443)}, 10443, "port 10443 of the serving pods"},
		"AWS Fargate":                 {ServingSpec{Port: ptr.To[int32](10251)}, 10251, "port 10251 of the serving pods"},
		"another port of the node":    {ServingSpec{Port: ptr.To[int32](4443), HostNetwork: true}, 4443, "port 4443 of the nodes with serving pods"},
		"the kubelet's port, in pods": {ServingSpec{Port: ptr.To[int32](10250)}, 10250, "port 10250 of the serving pods"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.serving.Endpoints(); got != tc.endpoints {
				t.Errorf("before SetDefaults the endpoints are %q, want %q", got, tc.endpoints)
			}
			spec := MetricsBackendSpec{Serving: tc.serving}
			SetDefaults(&spec)
			if got := *spec.Serving.Port; got != tc.want {
				t.Errorf("port %d, want %d", got, tc.want)
			}
			if got := spec.Serving.Endpoints(); got != tc.endpoints {
				t.Errorf("the endpoints are %q, want %q", got, tc.endpoints)
			}
		})
	}
}

// The messages are those of kube-aggregator's remote_available_controller.
func TestIsUnreachable(t *testing.T) {
	const url = "https://10.96.0.7:443/apis/metrics.k8s.io/v1"
	cases := map[string]struct {
		reason, message string
		want            bool
	}{
		"dropped packets": {"FailedDiscoveryCheck", `failing or missing response from ` + url + `: Get "` + url + `": context deadline exceeded`, true},
		"refused":         {"FailedDiscoveryCheck", `failing or missing response from ` + url + `: Get "` + url + `": dial tcp 10.96.0.7:443: connect: connection refused`, true},
		"not served":      {"FailedDiscoveryCheck", `failing or missing response from ` + url + `: bad status from ` + url + `: 404`, false},
		"untrusted":       {"FailedDiscoveryCheck", `failing or missing response from ` + url + `: Get "` + url + `": tls: failed to verify certificate: x509: certificate signed by unknown authority`, false},
		"no endpoints":    {"MissingEndpoints", "endpoints for service/a in \"b\" have no addresses with port name \"https\"", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := IsUnreachable(tc.reason, tc.message); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
