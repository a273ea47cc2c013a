// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
)

const (
	// monitoring is the kustomization for clusters with prometheus-operator.
	monitoring = "config/monitoring"
	rulesFile  = monitoring + "/rules.yaml"
	ruleFile   = monitoring + "/prometheusrule.yaml"
	ruleHead   = `# Made by hack/chart from rules.yaml: change it there, and run make generate.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: metrics-backend
  namespace: metrics-backend-system
  labels:
    app.kubernetes.io/name: metrics-backend-operator
spec:
`
)

// prometheusRule returns the PrometheusRule with the groups of rulesFile.
func prometheusRule(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, rulesFile))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(ruleHead)
	for line := range strings.Lines(withoutComments(string(content))) {
		b.WriteString("  " + line)
	}
	return b.String(), nil
}

// ruleTemplate makes the PrometheusRule optional. Helm must not evaluate the templates of Prometheus in it. The operator's
// namespace, in commands, is the release's.
func ruleTemplate(content string) (string, error) {
	head, spec, _ := strings.Cut(content, "\nspec:\n")
	head, err := labelled(withoutComments(head)+"\n", "$.Values.prometheusRule.labels")
	if err != nil {
		return "", err
	}
	head, err = replace(head, []replacement{
		{"  namespace: metrics-backend-system\n", "  namespace: {{ $.Values.prometheusRule.namespace | default $.Release.Namespace }}\n"},
	})
	return "{{- if $.Values.prometheusRule.enabled }}\n" + head + "spec:\n" +
		"{{`" + strings.ReplaceAll(strings.TrimSuffix(spec, "\n"), namespace, "`}}"+releaseNamespace+"{{`") + "`}}\n{{- end }}\n", err
}

// monitorTemplate makes Service and ServiceMonitors optional, and replaces fixed settings by values.
func monitorTemplate(content string) (string, error) {
	const token = "      credentials:\n        name: metrics-backend-metrics-reader\n        key: token\n"
	content = strings.ReplaceAll(content, "    interval: 30s\n", "    interval: {{ $.Values.serviceMonitor.interval }}\n")
	content = strings.ReplaceAll(content, token,
		"      {{- toYaml ($.Values.serviceMonitor.authorization | default (dict \"credentials\" (dict \"name\" \"metrics-backend-metrics-reader\" \"key\" \"token\"))) | nindent 6 }}\n")
	content, err := replace(content, []replacement{
		{"\nkind: ServiceMonitor\nmetadata:\n  name: metrics-backend-operator\n  namespace: metrics-backend-system\n",
			"\nkind: ServiceMonitor\nmetadata:\n  name: metrics-backend-operator\n  namespace: {{ $.Values.serviceMonitor.namespace | default $.Release.Namespace }}\n"},
		{"    tlsConfig:\n      insecureSkipVerify: true\n",
			"    tlsConfig:\n      {{- toYaml ($.Values.serviceMonitor.tlsConfig | default (dict \"insecureSkipVerify\" true)) | nindent 6 }}\n"},
		{"---\n# For the MetricsBackend of the name cluster.", "{{- if $.Values.serviceMonitor.serving.enabled }}\n{{- $backend := $.Values.serviceMonitor.serving.backend }}\n" +
			"{{- $namespace := $.Values.serviceMonitor.serving.namespace | default $.Release.Namespace }}\n---\n# For the MetricsBackend of the name cluster."},
		{"  name: metrics-backend-serving\n  namespace: metrics-backend-system\n", "  name: metrics-backend-serving\n  namespace: {{ $namespace }}\n"},
		{"      metricsbackend.io/backend: cluster\n", "      metricsbackend.io/backend: {{ $backend }}\n"},
		{"    tlsConfig:\n      ca:\n        secret:\n          name: metrics-serving-cluster-tls\n          key: ca.crt\n      serverName: metrics-serving-cluster.metrics-backend-system.svc\n",
			"    tlsConfig:\n      {{- with $.Values.serviceMonitor.serving.tlsConfig }}\n      {{- toYaml . | nindent 6 }}\n      {{- else }}\n" +
				"      ca:\n        secret:\n          name: metrics-serving-{{ $backend }}-tls\n          key: ca.crt\n      serverName: metrics-serving-{{ $backend }}.{{ $namespace }}.svc\n      {{- end }}\n"},
	})
	return "{{- if $.Values.serviceMonitor.enabled }}\n" + content + "{{- end }}\n{{- end }}\n", err
}

func withoutComments(content string) string {
	var b strings.Builder
	for line := range strings.Lines(content) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}
