// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/metrics/install"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
)

// api is what a Watcher must know of one kind of metric; everything else is the same for all metrics APIs. T is the
// type that consumers get, whatever version answered.
type api[T any] struct {
	group    string
	versions []string // in order of preference
	resource string   // the name in discovery whose verbs tell of watch
	// unnamed: discovery need not name the resource, since metrics come and go, and it tells of a bounded number.
	unnamed bool

	// path of a list or of a watch. They differ for custom metrics, where kube-apiserver knows only the /watch/
	// prefix as a long request, and cuts `?watch=true` on the path of the list after a minute.
	path func(version string, watch bool) string
	// plain: where the path of watches is refused, that of lists may be watched.
	plain bool
	query url.Values

	one  func(body []byte) (*T, error)
	list func(body []byte) ([]*T, error)

	key func(*T) string
	// sample tells data points of one object apart: the time orders them, the resourceVersion (empty with
	// metrics-server) tells equal times apart.
	sample func(*T) (time.Time, string)
}

// Nodes returns a Watcher of the nodes' metrics. It does nothing before Run.
func Nodes(config *rest.Config, options Options) (*Watcher[metricsv1.NodeMetrics], error) {
	convert := newConverter(metricsv1.SchemeGroupVersion, install.Install)
	return newWatcher(config, options, api[metricsv1.NodeMetrics]{
		group:    metricsv1.GroupName,
		versions: []string{"v1", "v1beta1"},
		resource: "nodes",
		path:     func(version string, _ bool) string { return "/apis/" + metricsv1.GroupName + "/" + version + "/nodes" },
		query:    selectors(options),
		one: func(body []byte) (*metricsv1.NodeMetrics, error) {
			return decode[*metricsv1.NodeMetrics](convert, body)
		},
		list: func(body []byte) ([]*metricsv1.NodeMetrics, error) {
			list, err := decode[*metricsv1.NodeMetricsList](convert, body)
			if err != nil {
				return nil, err
			}
			return pointers(list.Items), nil
		},
		key: func(m *metricsv1.NodeMetrics) string { return m.Name },
		sample: func(m *metricsv1.NodeMetrics) (time.Time, string) {
			return m.Timestamp.Time, m.ResourceVersion
		},
	})
}

// Pods returns a Watcher of the metrics of the pods in a namespace, or in all of them if it is empty. It does nothing
// before Run.
func Pods(config *rest.Config, namespace string, options Options) (*Watcher[metricsv1.PodMetrics], error) {
	within := ""
	if namespace != "" {
		if wrong := content.IsPathSegmentName(namespace); len(wrong) > 0 {
			return nil, fmt.Errorf("namespace %q: %s", namespace, strings.Join(wrong, ", "))
		}
		within = "/namespaces/" + namespace
	}
	convert := newConverter(metricsv1.SchemeGroupVersion, install.Install)
	return newWatcher(config, options, api[metricsv1.PodMetrics]{
		group:    metricsv1.GroupName,
		versions: []string{"v1", "v1beta1"},
		resource: "pods",
		path: func(version string, _ bool) string {
			return "/apis/" + metricsv1.GroupName + "/" + version + within + "/pods"
		},
		query: selectors(options),
		one: func(body []byte) (*metricsv1.PodMetrics, error) {
			return decode[*metricsv1.PodMetrics](convert, body)
		},
		list: func(body []byte) ([]*metricsv1.PodMetrics, error) {
			list, err := decode[*metricsv1.PodMetricsList](convert, body)
			if err != nil {
				return nil, err
			}
			return pointers(list.Items), nil
		},
		key: func(m *metricsv1.PodMetrics) string {
			if m.Name == "" {
				return ""
			}
			return m.Namespace + "/" + m.Name
		},
		sample: func(m *metricsv1.PodMetrics) (time.Time, string) {
			return m.Timestamp.Time, m.ResourceVersion
		},
	})
}

func selectors(options Options) url.Values {
	query := url.Values{}
	if options.LabelSelector != "" {
		query.Set("labelSelector", options.LabelSelector)
	}
	if options.FieldSelector != "" {
		query.Set("fieldSelector", options.FieldSelector)
	}
	return query
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		// A copy of its own each: a pointer into the slice would keep the whole list alive.
		item := items[i]
		out[i] = &item
	}
	return out
}
