// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const namespace = metav1.NamespaceDefault

// Rules in prometheus-adapter's syntax, the same for all contestants: JSON's form of YAML,
// for any indentation.
const (
	customRule = `{seriesQuery: '{__name__=~"^load_.*",namespace!="",pod!=""}', ` +
		`resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}, ` +
		`metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}`
	externalRule = `{seriesQuery: '{__name__=~"^jobs_.*",namespace!="",queue!=""}', ` +
		`resources: {overrides: {namespace: {resource: namespace}}}, ` +
		`metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'}`
)

// adapterConfig is prometheus-adapter's configuration.
const adapterConfig = "rules: [" + customRule + "]\nexternalRules: [" + externalRule + "]\n"

// manifest is serving's MetricsBackend, given the URL of Prometheus and the interval.
const manifest = `apiVersion: metricsbackend.io/v1alpha1
kind: MetricsBackend
metadata: {name: cluster}
spec:
  sources:
  - name: prometheus
    prometheus: {url: %q, interval: %s}
  customMetrics:
    rules: [` + customRule + `]
  externalMetrics:
    rules: [` + externalRule + `]
`

// routedManifest leads all requests to another implementation, given the namespace, name and port of its Service.
const routedManifest = `apiVersion: metricsbackend.io/v1alpha1
kind: MetricsBackend
metadata: {name: cluster}
spec:
  sources:
  - name: custom
    metricsAPI: {service: {namespace: %[1]s, name: %[2]s, port: %[3]s}, group: custom.metrics.k8s.io, tls: {insecureSkipTLSVerify: true}}
  - name: external
    metricsAPI: {service: {namespace: %[1]s, name: %[2]s, port: %[3]s}, group: external.metrics.k8s.io, tls: {insecureSkipTLSVerify: true}}
  customMetrics:
    routes: [{source: custom}]
  externalMetrics:
    routes: [{source: external}]
`

// kind is a metrics API.
type kind struct {
	name string
	// path returns the path of an autoscaler's request.
	path func(f *flags, autoscaler int) string
	// decode returns the values in a response.
	decode func(body []byte) (map[string]string, error)
	// goals are the largest ratios to prometheus-adapter that are aimed at, by the number of
	// autoscalers and the row.
	goals map[int]map[string]float64
	// withoutRaised leaves out prometheus-adapter with a raised limit, which affects custom
	// metrics only.
	withoutRaised bool
}

// kinds in the order of their tables.
var kinds = []kind{
	{name: "Custom metrics", path: customPath, decode: decodeCustom, goals: map[int]map[string]float64{10: {cpu: 1, rss: 1}}},
	{name: "External metrics", path: externalPath, decode: decodeExternal, withoutRaised: true, goals: map[int]map[string]float64{
		10:   {cpu: 1, rss: 1},
		1000: {p99: 0.6, queries: 0.05, cpu: 0.8, cpuPrometheus: 0.2},
	}},
}

// customPath is that of a metric of an application's pods, as an autoscaler requests it.
func customPath(f *flags, autoscaler int) string {
	metric, app := f.target(autoscaler)
	return fmt.Sprintf("/apis/custom.metrics.k8s.io/v1beta2/namespaces/%s/pods/*/%s?labelSelector=app%%3D%s", namespace, customMetric(metric), appName(app))
}

// externalPath is that of an external metric of a queue.
func externalPath(f *flags, autoscaler int) string {
	metric, queue := f.target(autoscaler)
	return fmt.Sprintf("/apis/external.metrics.k8s.io/v1beta1/namespaces/%s/%s?labelSelector=queue%%3D%s", namespace, externalMetric(metric), queueName(queue))
}

// target returns the metric and the selection of an autoscaler: the first ones request
// different metrics, further ones the same metrics with other selectors.
func (f *flags) target(autoscaler int) (metric, selection int) {
	return autoscaler % f.metrics, autoscaler / f.metrics % f.selected
}

func customMetric(n int) string   { return fmt.Sprintf("load_%03d", n) }
func externalMetric(n int) string { return fmt.Sprintf("jobs_%03d", n) }
func appName(n int) string        { return fmt.Sprintf("app-%02d", n) }
func queueName(n int) string      { return fmt.Sprintf("queue-%02d", n) }

// podName of a pod of an application.
func podName(app, pod int) string { return fmt.Sprintf("%s-%03d", appName(app), pod) }

// lines returns the body that Prometheus scrapes. Values differ by metric and object, and
// never change.
func lines(f *flags) string {
	var b strings.Builder
	for m := range f.metrics {
		for i := range f.selected {
			for pod := range f.pods {
				fmt.Fprintf(&b, "%s{namespace=%q,pod=%q} %d.5\n", customMetric(m), namespace, podName(i, pod), m*1000+i*100+pod)
			}
			fmt.Fprintf(&b, "%s{namespace=%q,queue=%q} %d.25\n", externalMetric(m), namespace, queueName(i), m*100+i)
		}
	}
	return b.String()
}
