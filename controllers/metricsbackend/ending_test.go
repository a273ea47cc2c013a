// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/podapi"
)

// A Deployment counts a pod no more from the moment that its deletion begins,
// while kube-apiserver's connections to it stay open: a version that it does not
// serve waits until it is gone.
func TestRegistersAfterTheLastPodEnded(t *testing.T) {
	w := newWorld(t, newBackend(func(spec *v1alpha1.MetricsBackendSpec) {
		onlyV1beta1(spec)
		spec.Serving.Image = imageV1beta1
	}))
	w.lingers = 5
	r := w.reconciler(interceptor.Funcs{})
	w.settle(r, w.isReady)
	w.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Image = imageBoth
		spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{"v1", "v1beta1"}
	})
	waited := false
	w.settle(r, func() bool {
		for _, s := range w.backend().Status.APIServices {
			waited = waited || s.Name == "v1.metrics.k8s.io" &&
				strings.HasSuffix(s.Message, "(image serving:v1beta1-only), which is ending and does not serve it")
		}
		return w.isReady()
	})
	if !waited {
		t.Error("the status never told what v1 waits for")
	}
	if !w.isRegistered(v1) {
		t.Error("v1 is not registered")
	}
}

func TestNotYetWhilePodsEnd(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	serves := func(versions ...schema.GroupVersion) *podapi.Answer {
		answer := &podapi.Answer{Serves: map[schema.GroupVersion]bool{}}
		for _, gv := range versions {
			answer.Serves[gv] = true
		}
		return answer
	}
	ending := func(deadline time.Duration, answer *podapi.Answer, err error) []pod {
		return []pod{{answer: answer, err: err, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "old", DeletionTimestamp: &metav1.Time{Time: now.Add(deadline)},
		}}}}
	}
	const waits = "waits for the end of pod old (image unknown), which is ending and does not "
	refused := errors.New("connection refused")
	cases := map[string]struct {
		ending []pod
		want   string
	}{
		"none":                    {},
		"it serves the version":   {ending: ending(time.Minute, serves(v1), nil)},
		"it does not":             {ending: ending(time.Minute, serves(v1beta1), nil), want: waits + "serve it"},
		"it does not, and lasts":  {ending: ending(-time.Hour, serves(v1beta1), nil), want: waits + "serve it"},
		"it does not answer":      {ending: ending(time.Minute, nil, refused), want: waits + "answer"},
		"its node went before it": {ending: ending(-time.Minute, nil, refused)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &scope{
				now: now, deployment: &appsv1.Deployment{}, rolledOut: true, caBundle: []byte("x"), ending: tc.ending,
				pods: []pod{{Pod: &corev1.Pod{}, ready: true, answer: serves(v1, v1beta1)}},
			}
			if got := s.notYet(v1); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
