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

// environment is what the load runs against.
type environment struct {
	plane      *cluster.ControlPlane
	target     *httptest.Server
	prometheus *cluster.Prometheus
	serving    *cluster.Serving
}

func startEnvironment(ctx context.Context, f *flags, folder string, say progress.Say) (e *environment, err error) {
	e = &environment{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.stop())
		}
	}()
	if _, err := os.Stat(f.binary); err != nil {
		return e, fmt.Errorf("find the serving component's binary (make bench-queries builds it): %w", err)
	}
	if e.plane, err = cluster.StartControlPlane(ctx, folder); err != nil {
		return e, err
	}
	say("kube-apiserver and etcd run")
	exposed := meter.New()
	if err := exposed.Set(lines(f)); err != nil {
		return e, err
	}
	e.target = httptest.NewServer(exposed)
	if e.prometheus, err = cluster.StartPrometheus(ctx, folder, e.target.URL); err != nil {
		return e, err
	}
	// Serving searches for series when it starts, and then each minute.
	if err := e.prometheus.WaitFor(ctx, metric(f.metrics-1)); err != nil {
		return e, err
	}
	say("Prometheus scrapes %d series", f.metrics*f.apps*f.pods)
	if err := createPods(ctx, e.plane, f); err != nil {
		return e, err
	}
	settings := fmt.Appendf(nil, manifest, e.prometheus.URL, f.interval)
	if e.serving, err = cluster.StartServing(e.plane, f.binary, settings, nil); err != nil {
		return e, err
	}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := e.serving.WaitReady(ready); err != nil {
		return e, err
	}
	if err := e.plane.Register(ctx, e.serving.Server, schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}); err != nil {
		return e, err
	}
	say("serving is ready, process %d", e.serving.PID())
	return e, e.waitForMetrics(ctx, f)
}

// waitForMetrics waits until the last metric of the rule has its values.
func (e *environment) waitForMetrics(ctx context.Context, f *flags) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = e.serving.Get(ctx, path(f, f.metrics-1))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the last metric: %w: %w", err, last)
	}
	return nil
}

// stop stops everything that was started.
func (e *environment) stop() error {
	var errs []error
	if e.serving != nil {
		errs = append(errs, e.serving.Stop())
	}
	if e.prometheus != nil {
		errs = append(errs, e.prometheus.Stop())
	}
	if e.target != nil {
		e.target.CloseClientConnections()
		e.target.Close()
	}
	if e.plane != nil {
		errs = append(errs, e.plane.Stop())
	}
	return errors.Join(errs...)
}

// ways returns the paths through kube-apiserver, like autoscalers, and without it.
func (e *environment) ways() ([]way, error) {
	core, err := kubernetes.NewForConfig(e.plane.Reader("load:autoscalers"))
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	direct := &http.Client{Transport: &http.Transport{TLSClientConfig: e.serving.TLS.Clone(), ForceAttemptHTTP2: true}}
	return []way{
		{name: "through kube-apiserver", ask: func(ctx context.Context, path string) error {
			return core.RESTClient().Get().RequestURI(path).MaxRetries(0).Do(ctx).Error()
		}},
		{name: "to serving", ask: func(ctx context.Context, path string) error {
			return askDirectly(ctx, direct, "https://"+e.serving.Address+path)
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
