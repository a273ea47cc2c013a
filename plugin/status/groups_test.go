// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// Each group has its own part of the tree, and only those that somebody serves or wants.
func TestGroupsOfAPIServices(t *testing.T) {
	service := func(version, group, backend string) APIService {
		return APIService{Registration: aggregation.Registration{
			Name: version + "." + group, Group: group, Version: version, Service: "ns/serving:443", Available: true, Backend: backend,
		}}
	}
	report := &Report{
		APIServices: []APIService{
			service("v1", "metrics.k8s.io", "cluster"), service("v1beta2", "custom.metrics.k8s.io", "cluster"),
			service("v1beta1", "custom.metrics.k8s.io", ""),
		},
		Backends: []Backend{{Name: "cluster", Status: v1alpha1.MetricsBackendStatus{APIServices: []v1alpha1.APIServiceStatus{
			{Name: "v1.metrics.k8s.io", State: v1alpha1.APIServiceAvailable},
			{Name: "v1beta1.custom.metrics.k8s.io", State: v1alpha1.APIServicePending, Message: "belongs to someone else"},
			{Name: "v1beta1.external.metrics.k8s.io", State: v1alpha1.APIServicePending, Message: "waits for a ready pod"},
		}}}},
	}
	tests := map[string]struct {
		report *Report
		want   []string
	}{
		"of a backend": {report: report, want: []string{
			"APIServices of metrics.k8s.io", "  v1.metrics.k8s.io", "APIServices of custom.metrics.k8s.io", "  v1beta2.custom.metrics.k8s.io",
			"  v1beta1.custom.metrics.k8s.io", "    Pending: belongs to someone else", "APIServices of external.metrics.k8s.io", "  v1beta1.external.metrics.k8s.io",
		}},
		"of nobody": {report: &Report{Backends: report.Backends[:0]}, want: []string{
			"APIServices of metrics.k8s.io", "  none: kubectl top and autoscalers get no metrics",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := &output.Node{}
			addAPIServices(root, tc.report, "cluster", time.Now())
			var got []string
			var walk func(*output.Node, string)
			walk = func(n *output.Node, indent string) {
				for _, child := range n.Children {
					if text := child.Cells[0].Text; !strings.Contains(text, "caBundle") {
						got = append(got, indent+text)
					}
					walk(child, indent+"  ")
				}
			}
			walk(root, "")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
