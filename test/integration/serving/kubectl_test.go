//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

func testKubectlTop(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
		not  []string
	}{
		"nodes":                {args: []string{"top", "nodes"}, want: []string{"node-a", "node-b", "2048Mi", "15"}},
		"nodes with swap":      {args: []string{"top", "nodes", "--show-swap"}, want: []string{"SWAP", "32Mi"}},
		"pods":                 {args: []string{"top", "pods", "-A"}, want: []string{"web-0", "web-1", "job-0", "128Mi", "64Mi"}},
		"pods with swap":       {args: []string{"top", "pods", "--show-swap"}, want: []string{"SWAP", "64Mi"}},
		"containers":           {args: []string{"top", "pods", "--containers"}, want: []string{"sidecar", "app", "work"}},
		"one pod":              {args: []string{"top", "pod", "web-1"}, want: []string{"web-1"}, not: []string{"web-0"}},
		"pods by label":        {args: []string{"top", "pods", "-l", "app=job"}, want: []string{"job-0"}, not: []string{"web"}},
		"pods by field":        {args: []string{"top", "pods", "--field-selector=metadata.name=web-0"}, want: []string{"web-0"}, not: []string{"web-1", "job"}},
		"nodes by label":       {args: []string{"top", "nodes", "-l", "zone=y"}, want: []string{"node-b"}, not: []string{"node-a"}},
		"sorted":               {args: []string{"top", "pods", "--sort-by=cpu"}, want: []string{"web-0"}},
		"v1 comes before beta": {args: []string{"top", "nodes", "-v=7"}, want: []string{"/apis/metrics.k8s.io/v1/nodes"}, not: []string{"/apis/metrics.k8s.io/v1beta1/nodes"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := cluster.kubectl(t, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			checkText(t, out, tc.want, tc.not)
		})
	}
}

func checkText(t *testing.T, text string, want, not []string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
	for _, part := range not {
		if strings.Contains(text, part) {
			t.Errorf("%q is in:\n%s", part, text)
		}
	}
}

// testDiscovery reads the aggregated document, in which a version that cannot be
// fetched is Stale.
func testDiscovery(t *testing.T) {
	outcome.Eventually(t, time.Minute, "both versions are current in aggregated discovery", func(context.Context) error {
		body, err := aggregatedDiscovery(t.Context())
		if err != nil {
			return err
		}
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		i := slices.IndexFunc(list.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == "metrics.k8s.io" })
		if i < 0 {
			return fmt.Errorf("the group is missing in %s", body)
		}
		var got []string
		for _, version := range list.Items[i].Versions {
			var resources []string
			for _, resource := range version.Resources {
				resources = append(resources, fmt.Sprintf("%s(%s)%v", resource.Resource, resource.ResponseKind.Kind, resource.Verbs))
			}
			got = append(got, fmt.Sprintf("%s %s %v", version.Version, version.Freshness, resources))
		}
		if len(got) != 2 || !strings.HasPrefix(got[0], "v1 Current [nodes(NodeMetrics)[get list") || !strings.HasPrefix(got[1], "v1beta1 Current [nodes(NodeMetrics)[get list") {
			return fmt.Errorf("versions: %q", got)
		}
		return nil
	})
	out, err := cluster.kubectl(t, "api-resources", "--api-group=metrics.k8s.io", "--no-headers")
	if err != nil {
		t.Fatal(err)
	}
	checkText(t, out, []string{"NodeMetrics", "PodMetrics", "metrics.k8s.io/v1 "}, []string{"v1beta1"})
}

func testOpenAPI(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		outcome.Eventually(t, time.Minute, "OpenAPI v3 of "+version, func(context.Context) error {
			body, err := raw(t.Context(), "/openapi/v3/apis/metrics.k8s.io/"+version)
			if err != nil {
				return err
			}
			if !strings.Contains(string(body), "/apis/metrics.k8s.io/"+version+"/namespaces/{namespace}/pods/{name}") {
				return fmt.Errorf("the path of a pod is missing in %d bytes", len(body))
			}
			return nil
		})
	}
	outcome.Eventually(t, 2*time.Minute, "OpenAPI v2", func(context.Context) error {
		body, err := raw(t.Context(), "/openapi/v2")
		if err != nil {
			return err
		}
		for _, part := range []string{"/apis/metrics.k8s.io/v1/nodes", "/apis/metrics.k8s.io/v1beta1/nodes"} {
			if !strings.Contains(string(body), part) {
				return fmt.Errorf("%s is missing in %d bytes", part, len(body))
			}
		}
		return nil
	})
	out, err := cluster.kubectl(t, "explain", "pods.containers.usage", "--api-version=metrics.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	checkText(t, out, []string{"PodMetrics", "usage"}, nil)
}
