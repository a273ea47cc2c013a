// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// trafficPaths are requested by clients of both versions.
var trafficPaths = []string{
	"/apis/metrics.k8s.io/v1/nodes",
	"/apis/metrics.k8s.io/v1/pods",
	"/apis/metrics.k8s.io/v1beta1/nodes",
	"/apis/metrics.k8s.io/v1beta1/namespaces/" + namespace + "/pods",
}

// traffic is a steady load of real requests through kube-apiserver.
type traffic struct {
	stop     func()
	context  context.Context
	mu       sync.Mutex
	answered int
	failures []string
}

// startTraffic asks each path ten times a second, without retries, on
// connections of its own, until result is called or the test ends.
func startTraffic(t *testing.T, paths ...string) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	tr := &traffic{context: ctx, stop: sync.OnceFunc(func() { cancel(); done.Wait() })}
	for _, path := range paths {
		config := rest.CopyConfig(suite.config)
		config.QPS = -1
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) { tr.send(ctx, client.RESTClient(), path) }, 100*time.Millisecond)
		})
	}
	t.Cleanup(func() {
		// A test that ended early says what its clients saw, too.
		if tr.running() {
			tr.finish(t, "until the test ended")
		}
	})
	return tr
}

// running reports whether nobody has asked for the result yet.
func (tr *traffic) running() bool { return tr.context.Err() == nil }

func (tr *traffic) send(ctx context.Context, client rest.Interface, path string) {
	began := time.Now()
	err := client.Get().RequestURI(path).MaxRetries(0).Timeout(10 * time.Second).Do(ctx).Error()
	if ctx.Err() != nil {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.answered++
	if err != nil {
		tr.failures = append(tr.failures, fmt.Sprintf("%s %s (%s): %v",
			began.Format("15:04:05.000"), path, time.Since(began).Round(time.Millisecond), err))
	}
}

// finish stops the load, and fails the test unless requests were made and each was answered. It returns their number.
func (tr *traffic) finish(t *testing.T, during string) int {
	t.Helper()
	total, failures := tr.result()
	t.Logf("%d requests %s, %d failed", total, during, len(failures))
	if len(failures) > 0 {
		outcome.Unsafe(t, "%d of %d requests failed %s:\n%s", len(failures), total, during, strings.Join(failures[:min(len(failures), 20)], "\n"))
	}
	if total == 0 {
		t.Errorf("no request was made %s", during)
	}
	return total
}

// result stops the load and returns how many requests were answered or failed,
// and each failure.
func (tr *traffic) result() (int, []string) {
	tr.stop()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.answered, slices.Clone(tr.failures)
}
