// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus/meter"
)

const namespace = metav1.NamespaceDefault

// manifest of the backend, with a rule as in prometheus-adapter's configurations.
const manifest = `apiVersion: metricsbackend.io/v1alpha1
kind: MetricsBackend
metadata: {name: cluster}
spec:
  sources:
  - name: prometheus
    prometheus: {url: %q, interval: %s}
  customMetrics:
    rules:
    - seriesQuery: '{__name__=~"^load_.*",namespace!="",pod!=""}'
      resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
      metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
`

// world is the environment of the load.
type world struct {
	plane      *cluster.ControlPlane
	target     *httptest.Server
	prometheus *cluster.Prometheus
	serving    *cluster.Serving
}

func startWorld(ctx context.Context, f *flags, folder string, say progress.Say) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	if _, err := os.Stat(f.binary); err != nil {
		return w, fmt.Errorf("find the serving component's binary (make bench-queries builds it): %w", err)
	}
	if w.plane, err = cluster.StartControlPlane(ctx, folder); err != nil {
		return w, err
	}
	say("kube-apiserver and etcd run")
	exposed := meter.New()
	if err := exposed.Set(lines(f)); err != nil {
		return w, err
	}
	w.target = httptest.NewServer(exposed)
	if w.prometheus, err = cluster.StartPrometheus(ctx, folder, w.target.URL); err != nil {
		return w, err
	}
	// Serving searches for series when it starts, and then each minute.
	if err := w.prometheus.WaitFor(ctx, metric(f.metrics-1)); err != nil {
		return w, err
	}
	say("Prometheus scrapes %d series", f.metrics*f.apps*f.pods)
	if err := createPods(ctx, w.plane, f); err != nil {
		return w, err
	}
	settings := fmt.Appendf(nil, manifest, w.prometheus.URL, f.interval)
	if w.serving, err = cluster.StartServing(w.plane, f.binary, settings, nil); err != nil {
		return w, err
	}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := w.serving.WaitReady(ready); err != nil {
		return w, err
	}
	if err := w.plane.Register(ctx, w.serving, schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}); err != nil {
		return w, err
	}
	say("serving is ready, process %d", w.serving.PID())
	return w, w.waitForMetrics(ctx, f)
}

// waitForMetrics waits until the last metric of the rule has its values.
func (w *world) waitForMetrics(ctx context.Context, f *flags) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = w.serving.Get(ctx, path(f, f.metrics-1))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the last metric: %w: %w", err, last)
	}
	return nil
}

// stop stops everything that was started.
func (w *world) stop() error {
	var errs []error
	if w.serving != nil {
		errs = append(errs, w.serving.Stop())
	}
	if w.prometheus != nil {
		errs = append(errs, w.prometheus.Stop())
	}
	if w.target != nil {
		w.target.CloseClientConnections()
		w.target.Close()
	}
	if w.plane != nil {
		errs = append(errs, w.plane.Stop())
	}
	return errors.Join(errs...)
}

// ways returns the paths through kube-apiserver, like autoscalers, and without it.
func (w *world) ways() ([]way, error) {
	core, err := kubernetes.NewForConfig(w.plane.Reader("load:autoscalers"))
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	direct := &http.Client{Transport: &http.Transport{TLSClientConfig: w.serving.TLS.Clone(), ForceAttemptHTTP2: true}}
	return []way{
		{name: "through kube-apiserver", ask: func(ctx context.Context, path string) error {
			return core.RESTClient().Get().RequestURI(path).MaxRetries(0).Do(ctx).Error()
		}},
		{name: "to serving", ask: func(ctx context.Context, path string) error {
			return askDirectly(ctx, direct, "https://"+w.serving.Address+path)
		}},
	}, nil
}

func metric(n int) string { return fmt.Sprintf("load_%03d", n) }

// podName of a pod of an application.
func podName(app, pod int) string { return fmt.Sprintf("app-%02d-%03d", app, pod) }

// lines returns the body that Prometheus scrapes.
func lines(f *flags) string {
	var b strings.Builder
	for m := range f.metrics {
		for app := range f.apps {
			for pod := range f.pods {
				fmt.Fprintf(&b, "%s{namespace=%q,pod=%q} %d\n", metric(m), namespace, podName(app, pod), m+app+pod)
			}
		}
	}
	return b.String()
}

// path returns the path of an autoscaler's request.
func path(f *flags, autoscaler int) string {
	return fmt.Sprintf("/apis/custom.metrics.k8s.io/v1beta2/namespaces/%s/pods/*/%s?labelSelector=app%%3Dapp-%02d",
		namespace, metric(autoscaler%f.metrics), autoscaler/f.metrics%f.apps)
}

// createPods creates pods that do not run: only their names and labels matter.
func createPods(ctx context.Context, plane *cluster.ControlPlane, f *flags) error {
	config := plane.Config
	config.QPS = -1
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for app := range f.apps {
		for pod := range f.pods {
			_, err := core.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: podName(app, pod), Labels: map[string]string{"app": fmt.Sprintf("app-%02d", app)}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create a pod: %w", err)
			}
		}
	}
	return nil
}
