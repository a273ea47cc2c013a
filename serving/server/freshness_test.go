// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// samplesAt reports a newest sample, as milliseconds since 1970; 0: none.
type samplesAt struct{ atomic.Int64 }

func (s *samplesAt) Report() v1alpha1.KubeletReport {
	if ms := s.Load(); ms > 0 {
		return v1alpha1.KubeletReport{NewestSample: metav1.NewTime(time.UnixMilli(ms))}
	}
	return v1alpha1.KubeletReport{}
}

func TestFreshnessFollowsTheNewestSample(t *testing.T) {
	registerMetrics()
	const name = "metrics_backend_store_newest_node_sample_timestamp_seconds"
	expect := func(want float64) {
		t.Helper()
		text := "# HELP " + name + " [ALPHA] Time in seconds since 1970 of the newest node sample that was read from any kubelet; 0 when there is none.\n" +
			"# TYPE " + name + " gauge\n" + name + " " + strconv.FormatFloat(want, 'g', -1, 64) + "\n"
		if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(text), name); err != nil {
			t.Error(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var source samplesAt
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go (&freshness{source: &source, clock: clock.RealClock{}}).run(ctx)
		synctest.Wait()
		expect(0)
		for _, ms := range []int64{1_750_000_000_250, 1_750_000_015_500} {
			source.Store(ms)
			time.Sleep(freshnessPeriod)
			synctest.Wait()
			expect(float64(ms) / 1000)
		}
	})
}
