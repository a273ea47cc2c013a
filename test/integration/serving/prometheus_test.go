//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

// fakePrometheus serves the parts of Prometheus' HTTP API that rules need. A query returns the series that it selects.
type fakePrometheus struct {
	*httptest.Server
	// series are label sets with __name__, and their values.
	series []fakeSeries
	// token is what requests must bear; empty for none.
	token string
}

type fakeSeries struct {
	labels map[string]string
	value  string
}

func startPrometheus(t *testing.T) *fakePrometheus {
	t.Helper()
	f := &fakePrometheus{}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

// set adds a series with a value, before the first request.
func (f *fakePrometheus) set(value string, labels ...string) {
	set := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		set[labels[i]] = labels[i+1]
	}
	f.series = append(f.series, fakeSeries{set, value})
}

func (f *fakePrometheus) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/api/v1/series"):
		found := []map[string]string{}
		for _, s := range f.series {
			if selected(s.labels, r.FormValue("match[]")) {
				found = append(found, s.labels)
			}
		}
		answer(w, found)
	case strings.HasSuffix(r.URL.Path, "/api/v1/query"):
		answer(w, map[string]any{"resultType": "vector", "result": f.vector(r.FormValue("query"))})
	default:
		http.NotFound(w, r)
	}
}

func answer(w http.ResponseWriter, data any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data})
}

// vector returns every series that an expression selects, without its name.
func (f *fakePrometheus) vector(expression string) []map[string]any {
	now := float64(time.Now().UnixMilli()) / 1000
	result := []map[string]any{}
	if expression == "vector(1)" {
		return append(result, map[string]any{"metric": map[string]string{}, "value": []any{now, "1"}})
	}
	for _, s := range f.series {
		if !selected(s.labels, expression) {
			continue
		}
		labels := map[string]string{}
		for name, value := range s.labels {
			if name != "__name__" {
				labels[name] = value
			}
		}
		result = append(result, map[string]any{"metric": labels, "value": []any{now, s.value}})
	}
	return result
}

var matchers = regexp.MustCompile(`([a-z_]+)(=~|!=|=)"([^"]*)"`)

// selected reports whether an expression selects a series: it has its name, and the series meets each matcher.
func selected(labels map[string]string, expression string) bool {
	name := labels["__name__"]
	if !regexp.MustCompile(`\b` + name + `\b`).MatchString(expression) {
		return false
	}
	for _, m := range matchers.FindAllStringSubmatch(expression, -1) {
		value := labels[m[1]]
		switch m[2] {
		case "=":
			if value != m[3] {
				return false
			}
		case "!=":
			if value == m[3] {
				return false
			}
		case "=~":
			if !regexp.MustCompile("^(?:" + m[3] + ")$").MatchString(value) {
				return false
			}
		}
	}
	return true
}
