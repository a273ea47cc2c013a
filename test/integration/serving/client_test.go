//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"testing"
	"time"

	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// testGoClient is our client against our server, through kube-apiserver.
func testGoClient(t *testing.T) {
	pods, err := client.Pods(cluster.config, "", client.Options{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := pods.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- pods.Run(ctx) }()

	// Of each pod the sample that the list had, and two more: without a watch they would come by the next poll only,
	// which the default puts far behind three scrapes.
	samples := map[string]map[time.Time]bool{}
	polled := false
	for change := range pods.Changes() {
		if change.Type != client.Updated {
			t.Errorf("%s of %s", change.Type, change.Object.Name)
		}
		seen := samples[change.Object.Name]
		if seen == nil {
			seen = map[time.Time]bool{}
			samples[change.Object.Name] = seen
		}
		seen[change.Object.Timestamp.Time] = true
		polled = polled || pods.Status().Mode == client.Polling
		if enough(samples, "web-0", "web-1") {
			break
		}
	}
	if !enough(samples, "web-0", "web-1") || len(samples) != 2 {
		t.Fatalf("samples %v, status %+v", samples, pods.Status())
	}
	status := pods.Status()
	if status.Mode != client.Watching || status.Version != "v1" || status.Err != nil || polled {
		t.Errorf("status %+v, polled %t", status, polled)
	}
	if got := names(pods.Snapshot()); len(got) != 2 || got[0] != "web-0" || got[1] != "web-1" {
		t.Errorf("snapshot of %v", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func enough(samples map[string]map[time.Time]bool, pods ...string) bool {
	for _, name := range pods {
		if len(samples[name]) < 3 {
			return false
		}
	}
	return true
}

func names(pods []*metricsv1.PodMetrics) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}
