// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus/meter"
)

// environment is what all contestants run against.
type environment struct {
	plane *cluster.ControlPlane
	// apiserver is the process ID of kube-apiserver.
	apiserver  int
	target     *httptest.Server
	prometheus *cluster.Prometheus
	// behind is what a routed contestant stands in front of; nil if none runs.
	behind *cluster.Server
}

func startEnvironment(ctx context.Context, f *flags, folder string, say progress.Say) (e *environment, err error) {
	e = &environment{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.stop())
		}
	}()
	if e.plane, err = cluster.StartControlPlane(ctx, folder); err != nil {
		return e, err
	}
	if e.apiserver, err = machine.Child("kube-apiserver"); err != nil {
		return e, err
	}
	say("kube-apiserver and etcd run")
	exposed := meter.New()
	if err := exposed.Set(lines(f)); err != nil {
		return e, err
	}
	e.target = httptest.NewServer(exposed)
	if e.prometheus, err = cluster.StartPrometheus(ctx, folder, e.target.URL, time.Second); err != nil {
		return e, err
	}
	// Contestants search for series when they start, and then each minute.
	for _, metric := range []string{customMetric(f.metrics - 1), externalMetric(f.metrics - 1)} {
		if err := e.prometheus.WaitFor(ctx, metric); err != nil {
			return e, err
		}
	}
	say("Prometheus scrapes %d series", f.metrics*f.selected*(f.pods+1))
	return e, createPods(ctx, e.plane, f)
}

// stop stops everything that was started.
func (e *environment) stop() error {
	var errs []error
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

// createPods creates pods that do not run: only their names and labels matter.
func createPods(ctx context.Context, plane *cluster.ControlPlane, f *flags) error {
	config := plane.Config
	config.QPS = -1
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for app := range f.selected {
		for pod := range f.pods {
			_, err := core.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: podName(app, pod), Labels: map[string]string{"app": appName(app)}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create a pod: %w", err)
			}
		}
	}
	return nil
}
