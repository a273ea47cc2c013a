// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http/httpproxy"
)

// A pod asks kube-apiserver directly, and everything else as its environment says.
func TestProxyOfKubeAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		host, upper, lower string
		want               map[string]bool
	}{
		"no exceptions":     {"10.96.0.1", "", "", map[string]bool{"10.96.0.1": false, "thanos.monitoring.svc": true, "prometheus.example": true}},
		"usual exceptions":  {"10.96.0.1", ".svc,.cluster.local", "", map[string]bool{"10.96.0.1": false, "thanos.monitoring.svc": false, "prometheus.example": true}},
		"in lower case":     {"10.96.0.1", "", ".svc", map[string]bool{"10.96.0.1": false, "thanos.monitoring.svc": false, "prometheus.example": true}},
		"all are excepted":  {"10.96.0.1", "*", "", map[string]bool{"10.96.0.1": false, "thanos.monitoring.svc": false, "prometheus.example": false}},
		"an IPv6 address":   {"fd00::1", ".svc", "", map[string]bool{"[fd00::1]": false, "[fd00::2]": true}},
		"a name of a cloud": {"api.example.com", ".svc", "", map[string]bool{"api.example.com": false, "example.com": true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
			t.Setenv("KUBERNETES_SERVICE_HOST", tc.host)
			t.Setenv("KUBERNETES_SERVICE_PORT", "443")
			t.Setenv("NO_PROXY", tc.upper)
			t.Setenv("no_proxy", tc.lower)
			for range 2 { // for authentication, too
				if _, err := restConfigFrom("", "--kubeconfig"); err == nil {
					t.Fatal("a configuration without the files of a pod")
				}
			}
			// What http.ProxyFromEnvironment reads once per process.
			proxyOf, got := httpproxy.FromEnvironment().ProxyFunc(), map[string]bool{}
			for host := range tc.want {
				proxy, err := proxyOf(&url.URL{Scheme: "https", Host: host})
				if err != nil {
					t.Fatal(err)
				}
				got[host] = proxy != nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("asked through the proxy (-want +got):\n%s", diff)
			}
		})
	}
}
