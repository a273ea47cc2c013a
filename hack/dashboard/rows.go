// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// Units of Grafana.
const (
	seconds   = "s"
	bytes     = "bytes"
	share     = "percentunit"
	perSecond = "ops"
	number    = "short"
)

const green, orange, red = "green", "orange", "red"

var (
	good     = []level{{0, red}, {1, green}}
	noErrors = "there were no errors."
)

var rows = []row{
	{"Overview", []panel{
		{title: "Available", unit: number, yes: true, levels: good,
			help:    "The operator's condition: every version is registered and answers with fresh data.",
			queries: []query{of(`min(max by (backend) (metrics_backend_condition{type="Available",status="True",BACKEND}))`, "")}},
		{title: "Spec applied", unit: number, yes: true, levels: good, help: "The operator's condition Ready.",
			queries: []query{of(`min(max by (backend) (metrics_backend_condition{type="Ready",status="True",BACKEND}))`, "")}},
		{title: "Firing alerts", unit: number, levels: []level{{0, green}, {1, red}},
			queries: []query{of(`count(ALERTS{alertname=~"Metrics(API|Backend|Watch).*",alertstate="firing"}) or vector(0)`, "")}},
		{title: "Ready serving pods", unit: number, levels: good,
			queries: []query{of(`sum(metrics_backend_readiness_gates_passed{SERVING})`, "")}},
		{title: "Nodes with fresh samples", unit: share, levels: []level{{0, red}, {0.9, orange}, {1, green}},
			noData:  "without spec.resourceMetrics.",
			queries: []query{of(`min(sum by (pod) (metrics_backend_kubelet_nodes{SERVING,state="healthy"}) / sum by (pod) (metrics_backend_kubelet_nodes{SERVING}))`, "")}},
		{title: "Certificate expires in", unit: seconds, levels: []level{{0, red}, {86400, orange}, {14 * 86400, green}},
			queries: []query{of(`min(metrics_backend_certificate_expiration_timestamp_seconds{BACKEND}) - time()`, "")}},
		{title: "Requests for metrics", unit: perSecond, stacked: true, help: "Watches count when they begin.",
			queries: []query{of(`sum by (group, verb) (rate(metrics_api_requests_total{SERVING}[RATE]))`, "{{group}} {{verb}}")}},
		{title: "Share of requests that fail (5xx)", unit: share, help: "Without watches.",
			queries: []query{of(`max by (group) (namespace_job_group:metrics_api_request_errors:ratio_rate5m{SERVING})`, "{{group}}")}},
		{title: "APIServices that kube-apiserver cannot reach", unit: number, noData: "kube-apiserver is not scraped.",
			queries: []query{of(`max by (name) (aggregator_unavailable_apiservice{name=~"v[^.]+\\.((custom|external)\\.)?metrics\\.k8s\\.io"})`, "{{name}}")}},
	}},
	{"Scrapes of kubelets and freshness", []panel{
		{title: "Nodes by state", unit: number, help: "Of the pod with most in each state: every pod scrapes every node.",
			queries: []query{of(`max by (state) (metrics_backend_kubelet_nodes{SERVING})`, "{{state}}")}},
		{title: "Pods that run without metrics", unit: number, help: "By their kubelets' responses, for several minutes.",
			queries: []query{of(`max(metrics_backend_kubelet_pods_without_metrics{SERVING})`, "pods")}},
		{title: "Scrapes by result", unit: perSecond, stacked: true,
			queries: []query{of(`sum by (result) (rate(metrics_backend_kubelet_scrapes_total{SERVING}[RATE]))`, "{{result}}")}},
		{title: "Age of the newest sample", unit: seconds, help: "By pod. Alert from 2 minutes on.", noData: "there is no sample yet.",
			queries: []query{of(`time() - (metrics_backend_store_newest_node_sample_timestamp_seconds{SERVING} > 0)`, "{{pod}}")}},
		{title: "Duration of scrapes", unit: seconds, queries: quantiles("metrics_backend_kubelet_scrape_duration_seconds")},
		{title: "Age of samples when they are read", unit: seconds, help: "A kubelet renews its samples every 10 to 20 seconds.",
			queries: quantiles("metrics_backend_kubelet_node_sample_age_seconds")},
		{title: "Delay of scrapes", unit: seconds, help: "Up to 0.25 s is the grid; more: raise scrape.maxConcurrent.",
			queries: quantiles("metrics_backend_kubelet_schedule_delay_seconds")},
		{title: "Running scrapes, and nodes whose refresh is predicted", unit: number, queries: []query{
			of(`sum by (pod) (metrics_backend_kubelet_scrapes_in_flight{SERVING})`, "{{pod}} scrapes"),
			of(`sum by (pod) (metrics_backend_kubelet_nodes_phase_tracked{SERVING})`, "{{pod}} predicted")}},
		{title: "Stored data points", unit: number, queries: []query{of(`max by (type) (metrics_backend_kubelet_store_points{SERVING})`, "{{type}}")}},
		{title: "Samples that were not used, by reason", unit: perSecond, noData: "all were used.",
			queries: []query{of(`sum by (reason) (rate(metrics_backend_kubelet_skipped_samples_total{SERVING}[RATE]))`, "{{reason}}")}},
	}},
	{"Lists and watches", []panel{
		{title: "Open watches", unit: number, stacked: true,
			queries: []query{of(`sum by (group, version, resource) (metrics_api_watch_connections_open{SERVING})`, "{{group}} {{version}} {{resource}}")}},
		{title: "Watches that begin, and polls", unit: perSecond, queries: []query{
			of(`sum(rate(metrics_api_watch_connections_total{SERVING}[RATE]))`, "watches"),
			of(`sum by (verb) (rate(metrics_api_requests_total{SERVING,verb!="watch"}[RATE]))`, "{{verb}}")}},
		{title: "Duration of requests (p99)", unit: seconds, help: "Lists and gets, in serving.",
			queries: []query{of(`histogram_quantile(0.99, sum by (le, group, verb) (rate(apiserver_request_duration_seconds_bucket{SERVING,group=~".*metrics.k8s.io",verb=~"GET|LIST"}[RATE])))`, "{{group}} {{verb}}")}},
		{title: "Events to watches", unit: perSecond, stacked: true,
			queries: []query{of(`sum by (type) (rate(metrics_api_watch_events_sent_total{SERVING}[RATE]))`, "{{type}}")}},
		{title: "Time to the first metric (p95), and to the connection (p99)", unit: seconds, help: "KEP-1013's objective is a second.", queries: []query{
			of(`max by (job) (namespace_job:metrics_api_watch_first_event_seconds:p95_rate5m{SERVING})`, "{{job}} first metric"),
			of(`max by (job) (namespace_job:metrics_api_watch_delivery_latency_seconds:p99_rate5m{SERVING})`, "{{job}} to the connection")}},
		{title: "Duration of watches that ended", unit: seconds, queries: quantiles("metrics_api_watch_duration_seconds")},
		{title: "Failed watches, by type", unit: perSecond, noData: noErrors,
			queries: []query{of(`sum by (type) (rate(metrics_api_watch_errors_total{SERVING}[RATE]))`, "{{type}}")}},
		{title: "Watches refused by a limit", unit: perSecond, noData: "none was.",
			queries: []query{of(`sum by (limit) (rate(metrics_api_watch_rejected_total{SERVING}[RATE]))`, "{{limit}}")}},
		{title: "Data points that wait, and that clients skip", unit: number, queries: []query{
			of(`sum(metrics_api_watch_pending_points{SERVING})`, "waiting"),
			of(`sum(rate(metrics_api_watch_coalesced_points_total{SERVING}[RATE]))`, "skipped a second"),
			of(`sum(rate(metrics_api_watch_rescans_total{SERVING}[RATE]))`, "scans of the store a second")}},
		{title: "Memory of a watch", unit: bytes, help: "Estimated. KEP-1013's objective is 1 MB.", noData: "no watch is open.",
			queries: []query{of(`sum(metrics_api_watch_memory_bytes{SERVING}) / (sum(metrics_api_watch_connections_open{SERVING}) > 0)`, "a watch")}},
		{title: "Encoded data points", unit: perSecond, queries: []query{
			of(`sum by (encoding) (rate(metrics_api_encoded_points_total{SERVING}[RATE]))`, "{{encoding}}")}},
	}},
	{"Custom and external metrics, by source and tenant", []panel{
		{title: "Queries to sources, by result", unit: perSecond, stacked: true, noData: noSource,
			queries: []query{of(`sum by (source, result) (rate(metrics_backend_query_evaluations_total{SERVING}[RATE]))`, "{{source}} {{result}}")}},
		{title: "Duration of queries", unit: seconds, noData: noSource, queries: quantiles("metrics_backend_query_evaluation_duration_seconds", "source")},
		{title: "Share of queries that fail", unit: share, noData: noSource,
			queries: []query{of(`max by (source) (namespace_job_source:metrics_backend_query_failures:ratio_rate5m{SERVING})`, "{{source}}")}},
		{title: "Running and waiting queries", unit: number, noData: noSource, queries: []query{
			of(`sum by (source) (metrics_backend_query_evaluations_in_flight{SERVING})`, "{{source}} running"),
			of(`sum by (source) (metrics_backend_query_evaluations_queued{SERVING})`, "{{source}} waiting")}},
		{title: "Suspended sources", unit: number, help: "1 while the circuit breaker is open.", noData: noSource, states: true, bad: "/.*/",
			queries: []query{of(`max by (source) (metrics_backend_query_circuit_breaker_open{SERVING})`, "{{source}}")}},
		{title: "Requests for the result of a query", unit: perSecond, stacked: true, help: "hit and shared cost the source nothing.", noData: noSource,
			queries: []query{of(`sum by (result) (rate(metrics_backend_query_requests_total{SERVING}[RATE]))`, "{{result}}")}},
		{title: "Age of results", unit: seconds, queries: quantiles("metrics_backend_query_result_age_seconds")},
		{title: "Cached queries of the largest tenants", unit: number, help: "A tenant is a namespace, or the cluster.", noData: noSource,
			queries: []query{of(`max by (tenant) (metrics_backend_query_tenant_cached_queries{SERVING})`, "{{tenant}}")}},
		{title: "Cached bytes of the largest tenants", unit: bytes, help: "The limit of all is 320 MiB.", noData: noSource,
			queries: []query{of(`max by (tenant) (metrics_backend_query_tenant_cached_bytes{SERVING})`, "{{tenant}}")}},
		{title: "Cache", unit: number, queries: []query{
			of(`max(metrics_backend_query_cached_queries{SERVING})`, "queries"),
			of(`max(metrics_backend_query_watched_queries{SERVING})`, "watched queries")}},
		{title: "Memory of cached queries", unit: bytes, queries: []query{of(`max by (pod) (metrics_backend_query_cached_bytes{SERVING})`, "{{pod}}")}},
		{title: "Metrics in discovery", unit: number, queries: []query{
			of(`max by (group) (metrics_api_discovery_metrics{SERVING})`, "{{group}}"),
			of(`max by (group) (metrics_api_discovery_omitted_metrics{SERVING})`, "{{group}}, left out")}},
		{title: "Watched metrics and values", unit: number, queries: []query{
			of(`sum by (group) (metrics_backend_value_cache_entries{SERVING})`, "{{group}} metrics"),
			of(`sum by (group) (metrics_backend_value_cache_points{SERVING})`, "{{group}} values")}},
		{title: "New values of watched metrics", unit: perSecond, queries: []query{
			of(`sum by (group) (rate(metrics_backend_value_cache_published_points_total{SERVING}[RATE]))`, "{{group}}")}},
		{title: "Failures of watched metrics", unit: perSecond, noData: noErrors,
			queries: []query{of(`sum by (group, reason) (rate(metrics_backend_value_cache_failures_total{SERVING}[RATE]))`, "{{group}} {{reason}}")}},
		{title: "CustomMetrics and ExternalMetrics by state", unit: number, stacked: true,
			queries: []query{of(`max by (kind, state) (metrics_backend_declared_metrics)`, "{{kind}} {{state}}")}},
		{title: "Parts of the configuration that cannot be used", unit: number, queries: []query{
			of(`max by (part) (metrics_backend_config_invalid_parts{SERVING})`, "{{part}}"),
			of(`max(metrics_backend_external_metrics_invalid_policies{SERVING})`, "ExternalMetricsPolicy")}},
		{title: "Requests and writes for the status of declared metrics", unit: perSecond, noData: "there was no such metric since the operator started.", queries: []query{
			of(`sum by (result) (rate(metrics_backend_declared_polls_total[RATE]))`, "requests, {{result}}"),
			of(`sum by (result) (rate(metrics_backend_declared_status_writes_total[RATE]))`, "writes, {{result}}")}},
	}},
	{"Lifecycle", []panel{
		{title: "Conditions", unit: number, help: "1 is True. Of Reconciling and Stalled that is red, of all others green.", width: 12,
			states: true, bad: "/ (Reconciling|Stalled)$/",
			queries: []query{of(`max by (backend, type) (metrics_backend_condition{status="True",BACKEND})`, "{{backend}} {{type}}")}},
		{title: "Clients by version", unit: number, help: "Of today or yesterday, at most 20.", noData: "serving does not report its clients.", width: 12,
			queries: []query{of(`max by (backend, version) (metrics_backend_consumers{BACKEND})`, "{{backend}} {{version}}")}},
		{title: "Leading operators", unit: number, queries: []query{
			of(`sum(LEADER)`, "leaders")}},
		{title: "Reconciliations", unit: perSecond, stacked: true, queries: []query{
			of(`sum by (controller, result) (rate(controller_runtime_reconcile_total{controller=~"metricsbackend.*|declared.*|policy.*"}[RATE]))`, "{{controller}} {{result}}")}},
		{title: "Requests of the operator to kube-apiserver", unit: perSecond, stacked: true, queries: []query{
			of(`sum by (method, code) (rate(rest_client_requests_total[RATE]) and on (namespace, job, instance) LEADER)`, "{{method}} {{code}}")}},
		{title: "Reloads of the MetricsBackend", unit: number, queries: []query{
			of(`sum by (pod, result) (increase(metrics_backend_config_reloads_total{SERVING}[RATE]))`, "{{pod}} {{result}}"),
			of(`min(metrics_backend_config_last_reload_successful{SERVING})`, "last one succeeded")}},
		{title: "Memory", unit: bytes, queries: []query{
			of(`process_resident_memory_bytes{SERVING}`, "{{pod}}"),
			of(`process_resident_memory_bytes and on (namespace, job, instance) LEADER`, "{{pod}}")}},
		{title: "CPU", unit: number, help: "In cores.", queries: []query{
			of(`rate(process_cpu_seconds_total{SERVING}[RATE])`, "{{pod}}"),
			of(`rate(process_cpu_seconds_total[RATE]) and on (namespace, job, instance) LEADER`, "{{pod}}")}},
	}},
}

const noSource = "no metric of a source was read."
