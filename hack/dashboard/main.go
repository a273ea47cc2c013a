// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command dashboard prints the Grafana dashboard, which hack/generate.sh writes to config/monitoring/dashboard.json. It
// has a module of its own for Grafana's library.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	built, err := build()
	if err == nil {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		err = encoder.Encode(built)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the dashboard:", err)
		os.Exit(1)
	}
}

//nolint:staticcheck // The schema of dashboardv2, which the library prefers, is a preview in Grafana 12.
func build() (dashboard.Dashboard, error) {
	builder := dashboard.NewDashboardBuilder("Metrics backend").
		Uid("metrics-backend").
		Description("metrics-backend-operator: the metrics APIs of Kubernetes, their sources, watches and lifecycle. Rows and alerts are explained in docs/tasks/monitoring.md and docs/reference/alerts.md.").
		Tags([]string{"kubernetes", "metrics-backend"}).
		Time("now-3h", "now").
		Refresh("1m").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("Alerts and what to do").Type(dashboard.DashboardLinkTypeLink).
			Url("https://github.com/metricsbackend/metrics-backend-operator/blob/main/docs/reference/alerts.md").TargetBlank(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		WithVariable(variable("backend", "MetricsBackend", "label_values(metrics_backend_condition, backend)")).
		WithVariable(variable("namespace", "Namespace of serving", "label_values(metrics_backend_readiness_gates_passed, namespace)")).
		WithVariable(variable("job", "Job of serving", `label_values(metrics_backend_readiness_gates_passed{namespace=~"$namespace"}, job)`))
	id := uint32(0)
	for _, row := range rows {
		id++
		builder.WithRow(dashboard.NewRowBuilder(row.title).Id(id))
		for _, p := range row.panels {
			id++
			builder.WithPanel(p.builder(id))
		}
	}
	built, err := builder.Build()
	for i := range built.Links {
		// Above the panels. The library's default is a menu.
		built.Links[i].Placement = nil
	}
	return built, err
}

// variable selects all values by default.
func variable(name, label, query string) *dashboard.QueryVariableBuilder {
	text, value := []string{"All"}, []string{"$__all"}
	return dashboard.NewQueryVariableBuilder(name).
		Label(label).
		Datasource(datasource).
		Query(dashboard.StringOrMap{String: &query}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).
		IncludeAll(true).
		Current(dashboard.VariableOption{
			Text: dashboard.StringOrArrayOfString{ArrayOfString: text}, Value: dashboard.StringOrArrayOfString{ArrayOfString: value},
		})
}

var datasource = common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
