// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/consumers"
)

// Handlers returns the handlers of all reports, by path.
func Handlers(r *Reporter, recorder *consumers.Recorder) map[string]http.Handler {
	return map[string]http.Handler{
		v1alpha1.SourcesPath:   handler(func(_ context.Context, w io.Writer) error { return json.NewEncoder(w).Encode(r.SourceReport()) }),
		v1alpha1.DeclaredPath:  handler(func(ctx context.Context, w io.Writer) error { return writeDeclared(w, r.DeclaredReport(ctx)) }),
		v1alpha1.ConsumersPath: handler(func(_ context.Context, w io.Writer) error { return json.NewEncoder(w).Encode(recorder.Report()) }),
	}
}

// handler serves a report as JSON. The server's handler chain has authorized the request:
// the verb get on the path.
func handler(write func(context.Context, io.Writer) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET is possible here", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if err := write(r.Context(), w); err != nil {
			klog.FromContext(r.Context()).V(4).Info("A client left before its report was written", "path", r.URL.Path, "err", err)
		}
	})
}

// writeDeclared writes a report metric by metric: the JSON of all of them can be tens of MiB.
func writeDeclared(w io.Writer, report v1alpha1.DeclaredReport) error {
	before := `{"metrics":[`
	for i := range report.Metrics {
		health, err := json.Marshal(&report.Metrics[i])
		if err != nil {
			return fmt.Errorf("encode the state of %s/%s: %w", report.Metrics[i].Namespace, report.Metrics[i].Name, err)
		}
		if _, err := fmt.Fprintf(w, "%s%s", before, health); err != nil {
			return err
		}
		before = ",\n"
	}
	if len(report.Metrics) == 0 {
		_, err := io.WriteString(w, "{}\n")
		return err
	}
	_, err := io.WriteString(w, "]}\n")
	return err
}
