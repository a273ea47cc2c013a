// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/metrics/install"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
)

// Nodes returns a Watcher of the metrics of nodes. It sends no request before Sync or Run.
func Nodes(config *rest.Config, options Options) (*Watcher[metricsv1.NodeMetrics], error) {
	nodes := newAPI(metricsv1.SchemeGroupVersion, install.Install, options, func(l *metricsv1.NodeMetricsList) []metricsv1.NodeMetrics { return l.Items })
	nodes.versions, nodes.resource = []string{"v1", "v1beta1"}, "nodes"
	nodes.path = func(version string, _ bool) string { return "/apis/" + metricsv1.GroupName + "/" + version + "/nodes" }
	nodes.key = func(m *metricsv1.NodeMetrics) string { return m.Name }
	nodes.sampleID = func(m *metricsv1.NodeMetrics) (time.Time, string) { return m.Timestamp.Time, m.ResourceVersion }
	return newWatcher(config, options, nodes)
}

// Pods returns a Watcher of the metrics of the pods in a namespace, or in all namespaces if it is empty. It sends no
// request before Sync or Run.
func Pods(config *rest.Config, namespace string, options Options) (*Watcher[metricsv1.PodMetrics], error) {
	resource := "/pods"
	if namespace != "" {
		if wrong := content.IsPathSegmentName(namespace); len(wrong) > 0 {
			return nil, fmt.Errorf("namespace %q: %s", namespace, strings.Join(wrong, ", "))
		}
		resource = "/namespaces/" + namespace + resource
	}
	pods := newAPI(metricsv1.SchemeGroupVersion, install.Install, options, func(l *metricsv1.PodMetricsList) []metricsv1.PodMetrics { return l.Items })
	pods.versions, pods.resource = []string{"v1", "v1beta1"}, "pods"
	pods.path = func(version string, _ bool) string { return "/apis/" + metricsv1.GroupName + "/" + version + resource }
	pods.key = func(m *metricsv1.PodMetrics) string {
		if m.Name == "" {
			return ""
		}
		return m.Namespace + "/" + m.Name
	}
	pods.sampleID = func(m *metricsv1.PodMetrics) (time.Time, string) { return m.Timestamp.Time, m.ResourceVersion }
	return newWatcher(config, options, pods)
}
