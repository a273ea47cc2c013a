// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"net/http"

	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// reporter sums up the scrapes.
type reporter interface {
	Report() v1alpha1.KubeletReport
}

// valueReporter tells of custom and external metrics.
type valueReporter interface {
	report(to *v1alpha1.SourceReport)
	declaredReport(ctx context.Context) v1alpha1.DeclaredReport
}

// sourcesHandler answers a SourceReport.
func sourcesHandler(source reporter, values valueReporter, config *configuration) http.Handler {
	return reportHandler("sources", func(context.Context) any {
		report := v1alpha1.SourceReport{ObservedGeneration: config.observedGeneration(), Kubelets: source.Report()}
		values.report(&report)
		return report
	})
}

// declaredHandler answers a DeclaredReport.
func declaredHandler(values valueReporter) http.Handler {
	return reportHandler("declared", func(ctx context.Context) any { return values.declaredReport(ctx) })
}

// reportHandler answers a report as JSON. Authorization has happened before, in
// the server's chain: the verb get on the path.
func reportHandler(subject string, report func(context.Context) any) http.Handler {
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
			klog.FromContext(r.Context()).V(4).Info("A client left before its report was written", "report", subject, "err", err)
		}
	})
}
