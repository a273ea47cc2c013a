//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/etcdwrites"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// TestPersistsNothing: scrapes, and requests with their token and access reviews, write nothing to etcd. With an interval
// of a second, this time stands for minutes with the default.
func TestPersistsNothing(t *testing.T) {
	const long = 15 * time.Second
	p, kubelet := startAlone(t, "steady")
	p.waitReady(t)
	reader := cluster.token(t, "reader")
	began := time.Now()
	writes, err := etcdwrites.Start(t.Context(), cluster.env.ControlPlane.Etcd.URL.String())
	if err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for time.Since(began) < long {
		<-ticker.C
		for _, version := range []string{"v1", "v1beta1"} {
			if status, body, err := p.get(t.Context(), "/apis/metrics.k8s.io/"+version+"/nodes", reader); err != nil || status != http.StatusOK {
				t.Fatalf("%s: status %d, %v: %s", version, status, err, body)
			}
		}
	}
	outcome.Eventually(t, time.Minute, "5 scrapes", func(context.Context) error {
		if n := kubelet.requests(began); n < 5 {
			return fmt.Errorf("%d scrapes", n)
		}
		return nil
	})
	written, err := writes.Stop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key, n := range written {
		if !etcdwrites.IsLease(key) {
			t.Errorf("%s was written %d times", key, n)
		}
	}
}
