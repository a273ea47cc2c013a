// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/json"
	"net/http"

	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/consumers"
)

// Handlers returns the handlers of all reports, by path.
func Handlers(r *Reporter, recorder *consumers.Recorder) map[string]http.Handler {
	return map[string]http.Handler{
		v1alpha1.SourcesPath:   handler(func(context.Context) any { return r.SourceReport() }),
		v1alpha1.DeclaredPath:  handler(func(ctx context.Context) any { return r.DeclaredReport(ctx) }),
		v1alpha1.ConsumersPath: handler(func(context.Context) any { return recorder.Report() }),
	}
}

// handler serves a report as JSON. The server's handler chain has authorized the request:
// the verb get on the path.
func handler(report func(context.Context) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET is possible here", http.StatusMethodNotAllowed)
			return
		}
		body, err := json.Marshal(report(r.Context()))
		if err != nil {
			http.Error(w, "encode the report: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if _, err := w.Write(append(body, '\n')); err != nil {
			klog.FromContext(r.Context()).V(4).Info("A client left before its report was written", "path", r.URL.Path, "err", err)
		}
	})
}
