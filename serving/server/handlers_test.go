// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

type fakeReporter v1alpha1.KubeletReport

func (f fakeReporter) Report() v1alpha1.KubeletReport { return v1alpha1.KubeletReport(f) }

// fakeValues is a valueReporter.
type fakeValues struct{ valueReporter }

func (fakeValues) report(to *v1alpha1.SourceReport) { to.RuleCount = 3 }

func TestSourcesHandler(t *testing.T) {
	report := v1alpha1.KubeletReport{
		Nodes: 3, Healthy: 1, Pending: 1, NewestSample: metav1.NewTime(time.Unix(1700000000, 0)),
		Failures: []v1alpha1.KubeletFailure{{Reason: v1alpha1.ScrapeTimeout, Count: 1, Nodes: []string{"a"}, Message: "no answer"}},
	}
	handler := sourcesHandler(fakeReporter(report), fakeValues{}, &configuration{generation: 7})
	tests := map[string]int{
		http.MethodGet:    http.StatusOK,
		http.MethodHead:   http.StatusOK,
		http.MethodPost:   http.StatusMethodNotAllowed,
		http.MethodDelete: http.StatusMethodNotAllowed,
	}
	for method, want := range tests {
		t.Run(method, func(t *testing.T) {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest(method, v1alpha1.SourcesPath, nil))
			if answer.Code != want {
				t.Fatalf("status %d, want %d", answer.Code, want)
			}
			if method != http.MethodGet {
				return
			}
			var got v1alpha1.SourceReport
			if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
				t.Fatalf("decode %q: %v", answer.Body, err)
			}
			if diff := cmp.Diff(v1alpha1.SourceReport{ObservedGeneration: 7, Kubelets: report, RuleCount: 3}, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if got := answer.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
		})
	}
}

// TestLeaveOnShutdown uses real connections: the point is what they do.
func TestLeaveOnShutdown(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			shuttingDown := make(chan struct{})
			server := httptest.NewUnstartedServer(withLeaveOnShutdown(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.RemoteAddr)
			}), shuttingDown))
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			get := func() string {
				t.Helper()
				answer, err := server.Client().Get(server.URL)
				if err != nil {
					t.Fatalf("get: %v", err)
				}
				defer answer.Body.Close()
				if (answer.ProtoMajor == 2) != http2 {
					t.Fatalf("answered with %s", answer.Proto)
				}
				body, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatalf("read: %v", err)
				}
				return string(body)
			}
			first := get()
			if second := get(); second != first {
				t.Fatalf("the connection is not kept: %s, then %s", first, second)
			}
			close(shuttingDown)
			last := get()
			if last != first {
				t.Errorf("the request after shutdown began took another connection: its answer should only announce the close")
			}
			if next := get(); next == last {
				t.Error("the connection is kept although the server is shutting down")
			}
		})
	}
}
