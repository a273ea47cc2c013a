// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/monitoring"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// queryDashboard is a companion of TestWatch: each query of the dashboard has a result once, but for those of panels that
// say when they have none, which only must not fail.
func queryDashboard(t *testing.T) {
	address := prometheusURL(t, "prometheus")
	dashboard, err := monitoring.ReadDashboard(suite.root)
	if err != nil {
		t.Fatal(err)
	}
	values := variableValues(t, address, dashboard)
	missing, queries := map[string]string{}, 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries++
			expr := monitoring.WithValues(target.Expr, values, "30s")
			if !panel.MayBeEmpty() || panelHasData[panel.Title] {
				missing[expr] = panel.Title
				continue
			}
			if _, err := queryPrometheus(t.Context(), address, expr); err != nil {
				t.Errorf("%s: %v", panel.Title, err)
			}
		}
	}
	t.Logf("%d queries, of which %d must have a result", queries, len(missing))
	outcome.Eventually(t, 2*time.Minute, "each query of the dashboard has a result", func(ctx context.Context) error {
		for expr := range missing {
			result, err := queryPrometheus(ctx, address, expr)
			if err != nil {
				return fmt.Errorf("%s: %w", missing[expr], err)
			}
			if len(result) > 0 {
				delete(missing, expr)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("no result of %q", missing)
		}
		return nil
	})
}

// variableValues returns the values of the dashboard's variables, by the requests of Grafana.
func variableValues(t *testing.T, address string, dashboard *monitoring.Dashboard) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	for _, v := range dashboard.Templating.List {
		selector, label := v.LabelValues()
		if label == "" {
			continue
		}
		selector = monitoring.WithValues(selector, values, "")
		outcome.Eventually(t, time.Minute, fmt.Sprintf("the variable %s has values, by %s of %s", v.Name, label, selector), func(ctx context.Context) error {
			var answer struct{ Data []string }
			err := getJSON(ctx, http.DefaultClient, "application/json", address+"/api/v1/label/"+label+"/values?match[]="+url.QueryEscape(selector), &answer)
			if err == nil && len(answer.Data) == 0 {
				err = errors.New("no values")
			}
			values[v.Name] = answer.Data
			return err
		})
	}
	t.Logf("the values of the variables are %v", values)
	return values
}

// panelHasData are panels that may be empty elsewhere, but not here.
var panelHasData = map[string]bool{
	"Nodes with fresh samples": true, "APIServices that kube-apiserver cannot reach": true, "Age of the newest sample": true,
	"Memory of a watch": true, "Clients by version": true,
	"Queries to sources, by result": true, "Duration of queries": true, "Share of queries that fail": true, "Running and waiting queries": true,
	"Suspended sources": true, "Requests for the result of a query": true,
	"Cached queries of the largest tenants": true, "Cached bytes of the largest tenants": true,
}
