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

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestNewestSample(t *testing.T) {
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
		var newest atomic.Pointer[metav1.Time]
		newest.Store(&metav1.Time{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go updateNewestSample(ctx, func() v1alpha1.KubeletReport { return v1alpha1.KubeletReport{NewestSample: *newest.Load()} })
		synctest.Wait()
		expect(0)
		for _, ms := range []int64{1_750_000_000_250, 1_750_000_015_500} {
			at := metav1.NewTime(time.UnixMilli(ms))
			newest.Store(&at)
			time.Sleep(newestSamplePeriod)
			synctest.Wait()
			expect(float64(ms) / 1000)
		}
	})
}
