// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package prometheus

import (
	"net/http/httptest"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/test/prometheus/meter"
)

func TestScrapesWhatATestSets(t *testing.T) {
	exposed := meter.New()
	target := httptest.NewServer(exposed)
	defer target.Close()
	set := func(lines string) {
		if err := exposed.Set(lines); err != nil {
			t.Fatal(err)
		}
	}
	set(`queue_length{namespace="shop",queue="a"} 17`)
	server := Start(t, Scrape(target.URL))
	server.WaitFor(t, `queue_length{namespace="shop",queue="a"} == 17`)
	set(`queue_length{namespace="shop",queue="a"} 18` + "\nhits_total 0 +10")
	server.WaitFor(t, `queue_length == 18`)
	server.WaitFor(t, `rate(hits_total[10s]) > 5`)
}
