// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// mostGap is the longest time between two events of a metric that is evaluated each 5 s.
const mostGap = 20 * time.Second

// watchMetrics holds streams through kube-apiserver as long as those of TestWatch.
func watchMetrics(t *testing.T) {
	const (
		custom   = "/apis/custom.metrics.k8s.io/v1beta2"
		external = "/apis/external.metrics.k8s.io/v1beta1"
		pods     = "/namespaces/shop/pods/*/checkout_requests_per_second"
	)
	for name, path := range map[string]string{
		"external":          external + "/namespaces/shop/mail%5C%7Cqueue_length?watch=true&labelSelector=queue%3Doutgoing",
		"custom, /watch/":   custom + "/watch" + pods,
		"custom, v1beta1":   "/apis/custom.metrics.k8s.io/v1beta1/watch/namespaces/shop/services/orders/orders_in_flight",
		"root, namespace's": custom + "/watch/namespaces/shop/metrics/orders_in_flight",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waitForMetric(t, strings.Replace(strings.Replace(path, "/watch/", "/", 1), "watch=true", "", 1))
			ctx, cancel := context.WithTimeout(t.Context(), watchWindow(t))
			defer cancel()
			held := holdWatch(ctx, path)
			if ctx.Err() == nil {
				outcome.Unsafe(t, "it ended after %s, before its time: %v", held.lasted, held.err)
			}
			// A new one comes each 5 s.
			if least := int(watchWindow(t) / (30 * time.Second)); held.points < least {
				outcome.Unsafe(t, "%d points in %s, want %d and more", held.points, held.lasted, least)
			}
			outcome.Measure(t, "longest gap between values of a metric that is evaluated each 5 s", held.gap, mostGap)
			t.Logf("%d points in %s", held.points, held.lasted.Round(time.Second))
		})
	}
	t.Run("custom, ?watch=true", func(t *testing.T) {
		t.Parallel()
		waitForMetric(t, custom+pods)
		held := holdWatch(t.Context(), custom+pods+"?watch=true&allowWatchBookmarks=true")
		// kube-apiserver would reset the stream at 60 s.
		if !errors.Is(held.err, io.EOF) || held.lasted < 30*time.Second || held.bookmarks == 0 {
			outcome.Unsafe(t, "it ended after %s with %v, after %d bookmarks; want a clean end after 30 s and more, with a bookmark", held.lasted, held.err, held.bookmarks)
		}
		outcome.Measure(t, "a stream that kube-apiserver would cut off at 60 s ends", held.lasted, 59*time.Second)
		t.Logf("%d points, clean end after %s", held.points, held.lasted.Round(time.Second))
	})
}

// waitForMetric waits until each pod has values of a metric.
func waitForMetric(t *testing.T, path string) {
	t.Helper()
	outcome.Eventually(t, 2*time.Minute, "each pod has values of "+path, func(ctx context.Context) error {
		return eachPod(ctx, func(pod rest.Interface) error { return readValue(ctx, pod, path) })
	})
}

// readValue returns an error unless there are values at a path.
func readValue(ctx context.Context, client rest.Interface, path string) error {
	body, err := client.Get().RequestURI(path).DoRaw(ctx)
	switch {
	case err != nil:
		// The error has only the status, the body the reason.
		return fmt.Errorf("%w: %s", err, body)
	case !strings.Contains(string(body), `"value"`):
		return fmt.Errorf("no value in %s", body)
	}
	return nil
}

// heldWatch is what a stream brought until it ended.
type heldWatch struct {
	points, bookmarks int
	gap, lasted       time.Duration
	err               error
}

// holdWatch reads a watch until it or the context ends. Points are events whose
// timestamp their object did not have before.
func holdWatch(ctx context.Context, path string) (held heldWatch) {
	began := time.Now()
	defer func() { held.lasted = time.Since(began) }()
	body, err := suite.core.RESTClient().Get().RequestURI(path).Stream(ctx)
	if err != nil {
		held.err = err
		return held
	}
	defer func() { _ = body.Close() }()
	last, seen := time.Now(), map[string]string{}
	for events := json.NewDecoder(body); ; {
		var event struct {
			Type   string `json:"type"`
			Object struct {
				DescribedObject struct {
					Name string `json:"name"`
				} `json:"describedObject"`
				Timestamp metav1.Time `json:"timestamp"`
			} `json:"object"`
		}
		if err := events.Decode(&event); err != nil {
			held.err = err
			return held
		}
		switch event.Type {
		case "ADDED":
			name, at := event.Object.DescribedObject.Name, event.Object.Timestamp.String()
			if seen[name] == at {
				continue
			}
			seen[name] = at
			held.points++
			held.gap, last = max(held.gap, time.Since(last)), time.Now()
		case "BOOKMARK":
			held.bookmarks++
		default:
			held.err = fmt.Errorf("an event of type %s", event.Type)
			return held
		}
	}
}
