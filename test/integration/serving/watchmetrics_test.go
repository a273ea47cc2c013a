//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// TestWatchMetrics checks the metrics of watches while they are open and after they ended, and the log.
func TestWatchMetrics(t *testing.T) {
	beside(t)
	startCrowd(t, "measured")
	p := cluster.startServing(t, "measuring", crowdBackend(t, "measured", ""))
	p.waitReady(t)
	reader, nobody := cluster.token(t, "reader"), cluster.token(t, "nobody")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	httpClient := p.watchClient(t, "HTTP/2", nil)
	// Ready is before the first rates where the first two samples come at once; and each list counts.
	outcome.Eventually(t, 30*time.Second, "both pods of the pair have a data point", func(context.Context) error {
		_, body, err := p.get(ctx, "/apis/metrics.k8s.io/v1beta1/namespaces/"+workloads+"/pods?labelSelector=pair%3D"+pairOf("measured", 1), reader)
		if n := strings.Count(body, `"containers"`); err == nil && n != 2 {
			err = fmt.Errorf("%d pods in %s", n, body)
		}
		return err
	})
	var watches []*watched
	for _, version := range []string{"v1", "v1", "v1beta1"} {
		answer, err := p.open(ctx, httpClient, "/apis/metrics.k8s.io/"+version+"/namespaces/"+workloads+"/pods?watch=true&labelSelector=pair%3D"+pairOf("measured", 1), reader)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		watches = append(watches, follow(answer))
	}
	for path, want := range map[string]int{
		"/apis/metrics.k8s.io/v1/pods?watch=true&timeoutSeconds=soon": http.StatusBadRequest,
		"/apis/metrics.k8s.io/v1/pods":                                http.StatusOK,
	} {
		if status, body, err := p.get(ctx, path, reader); err != nil || status != want {
			t.Errorf("%s: status %d, %v, want %d: %s", path, status, err, want, body)
		}
	}
	if status, _, err := p.get(ctx, "/apis/metrics.k8s.io/v1/pods?watch=true", nobody); err != nil || status != http.StatusForbidden {
		t.Errorf("nobody watches: status %d, %v", status, err)
	}
	for range 3 { // the first two may be of those that were there
		for _, w := range watches {
			w.next(t, 30*time.Second)
		}
	}

	type series struct {
		name   string
		labels string
	}
	atLeast := func(want map[series]float64, atMost bool) error {
		for s, n := range want {
			labels := map[string]string{"group": "metrics.k8s.io", "resource": "pods"}
			for pair := range strings.FieldsSeq(s.labels) {
				name, value, _ := strings.Cut(pair, "=")
				labels[name] = value
			}
			got, err := p.sample(t.Context(), reader, s.name, labels)
			if err != nil {
				return err
			}
			if got < n || (atMost && got > n) {
				return fmt.Errorf("%s{%s} is %v, want %v", s.name, s.labels, got, n)
			}
		}
		return nil
	}
	outcome.Eventually(t, 30*time.Second, "metrics of open watches", func(context.Context) error {
		if err := atLeast(map[series]float64{
			{"metrics_api_watch_connections_open", "version=v1"}:                    2,
			{"metrics_api_watch_connections_open", "version=v1beta1"}:               1,
			{"metrics_api_watch_connections_total", "version=v1"}:                   2,
			{"metrics_api_requests_total", "version=v1 verb=watch code=200"}:        2,
			{"metrics_api_requests_total", "version=v1 verb=watch code=400"}:        1,
			{"metrics_api_requests_total", "version=v1 verb=watch code=403"}:        1,
			{"metrics_api_requests_total", "version=v1 verb=list code=200"}:         1,
			{"metrics_api_watch_errors_total", "version=v1 type=BadRequest"}:        1,
			{"metrics_api_watch_errors_total", "version=v1 type=Forbidden"}:         1,
			{"metrics_api_watch_errors_total", "version=v1beta1"}:                   0,
			{"metrics_api_watch_events_sent_total", "version=v1beta1 type=initial"}: 2,
			{"metrics_api_encoded_points_total", "encoding=other"}:                  0,
		}, true); err != nil {
			return err
		}
		return atLeast(map[series]float64{
			{"metrics_api_watch_events_sent_total", "version=v1 type=live"}: 2,
			{"metrics_api_watch_memory_bytes", "version=v1"}:                2 * 60 << 10,
			{"metrics_api_encoded_points_total", "encoding=json"}:           4,
		}, false)
	})

	cancel()
	outcome.Eventually(t, 30*time.Second, "metrics after the watches ended", func(context.Context) error {
		return atLeast(map[series]float64{
			{"metrics_api_watch_connections_open", ""}:                 0,
			{"metrics_api_watch_memory_bytes", ""}:                     0,
			{"metrics_api_watch_pending_points", ""}:                   0,
			{"metrics_api_watch_errors_total", "type=WriteFailed"}:     0,
			{"metrics_api_watch_connections_total", "version=v1beta1"}: 1,
		}, true)
	})
	for message, also := range map[string]string{
		`"Watch began"`: `timeout=`, `"Watch ended"`: `reason="ClientClosed"`,
	} {
		outcome.Eventually(t, 10*time.Second, "the log has each watch", func(context.Context) error {
			found := 0
			for line := range strings.Lines(p.log.String()) {
				if strings.Contains(line, message) && strings.Contains(line, also) && strings.Contains(line, `labelSelector="pair=`+pairOf("measured", 1)+`"`) &&
					strings.Contains(line, `userAgent="Go-http-client/2.0"`) && strings.Contains(line, `:reader"`) {
					found++
				}
			}
			if found != len(watches) {
				return fmt.Errorf("%d lines of %s with %s, want %d", found, message, also, len(watches))
			}
			return nil
		})
	}
}
