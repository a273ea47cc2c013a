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
	convert := newConverter(metricsv1.SchemeGroupVersion, install.Install)
	return newWatcher(config, options, api[metricsv1.NodeMetrics]{
		group:        metricsv1.GroupName,
		versions:     []string{"v1", "v1beta1"},
		resource:     "nodes",
		path:         func(version string, _ bool) string { return "/apis/" + metricsv1.GroupName + "/" + version + "/nodes" },
		query:        selectors(options),
		decodeObject: decoderTo[*metricsv1.NodeMetrics](convert),
		decodeList:   listDecoderTo(convert, func(l *metricsv1.NodeMetricsList) []metricsv1.NodeMetrics { return l.Items }),
		key:          func(m *metricsv1.NodeMetrics) string { return m.Name },
		sampleID: func(m *metricsv1.NodeMetrics) (time.Time, string) {
			return m.Timestamp.Time, m.ResourceVersion
		},
	})
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
	convert := newConverter(metricsv1.SchemeGroupVersion, install.Install)
	return newWatcher(config, options, api[metricsv1.PodMetrics]{
		group:        metricsv1.GroupName,
		versions:     []string{"v1", "v1beta1"},
		resource:     "pods",
		path:         func(version string, _ bool) string { return "/apis/" + metricsv1.GroupName + "/" + version + resource },
		query:        selectors(options),
		decodeObject: decoderTo[*metricsv1.PodMetrics](convert),
		decodeList:   listDecoderTo(convert, func(l *metricsv1.PodMetricsList) []metricsv1.PodMetrics { return l.Items }),
		key: func(m *metricsv1.PodMetrics) string {
			if m.Name == "" {
				return ""
			}
			return m.Namespace + "/" + m.Name
		},
		sampleID: func(m *metricsv1.PodMetrics) (time.Time, string) {
			return m.Timestamp.Time, m.ResourceVersion
		},
	})
}
