// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// adoptedWorld has a backend of our own pods that took v1beta1 from metrics-server,
// which still runs.
func adoptedWorld(w *world) {
	stockWorld(w)
	w.change(adopting(v1alpha1.AdoptionAlways))
	becomeReady(w)
}

// The spec and labels that metrics-server's manifests made are there again, and our
// pods answered until every kube-apiserver knew.
func TestHandBack(t *testing.T) {
	cases := map[string]struct {
		happen func(*world)
		done   func(*world) bool
	}{
		"deleted": {
			happen: func(w *world) { w.must(w.raw.Delete(context.Background(), w.backend())) },
			done:   (*world).isGone,
		},
		"version taken out of the spec": {
			happen: func(w *world) {
				w.change(func(spec *v1alpha1.MetricsBackendSpec) {
					spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{"v1"}
				})
			},
			done: (*world).isReady,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := prepared(t, "adopted", adoptedWorld)
			uid := w.apiService(v1beta1).UID
			r := w.live(interceptor.Funcs{})
			tc.happen(w)
			w.settle(r, func() bool { return tc.done(w) })
			got := w.apiService(v1beta1)
			if got.UID != uid {
				t.Error("it was deleted and made anew")
			}
			want := stockAPIService()
			if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
				t.Errorf("spec (-stock +handed back):\n%s", diff)
			}
			if diff := cmp.Diff(want.Labels, got.Labels); diff != "" {
				t.Errorf("labels (-stock +handed back):\n%s", diff)
			}
			if len(got.Annotations) > 0 {
				t.Errorf("annotations left: %v", got.Annotations)
			}
			if !recorded(r, "VersionHandedBack", "handed APIService v1beta1.metrics.k8s.io back to Service kube-system/metrics-server") {
				t.Error("no event tells of it")
			}
		})
	}
}

// Who cannot take it back does not get it: an APIService that leads nowhere blocks
// the deletion of every namespace.
func TestHandBackIsNotPossible(t *testing.T) {
	annotate := func(text string) func(*world) {
		return func(w *world) {
			service := w.apiService(v1beta1)
			service.Annotations[v1alpha1.AnnotationPreviousOwner] = text
			w.must(w.raw.Update(context.Background(), service))
		}
	}
	const impossible, silent = "HandBackImpossible", "PreviousOwnerSilent"
	cases := map[string]struct {
		world func(*world)
		event []string
		// patient: it may come back, so it is waited for.
		patient bool
	}{
		"its Service is gone": {
			world: func(w *world) { w.must(w.raw.Delete(context.Background(), theirService(w))) },
			event: []string{silent, "Service kube-system/metrics-server does not exist"},
		},
		"it has no ready endpoint": {
			world: func(w *world) { w.scaleMetricsServer(0) },
			event: []string{silent, "it has no ready endpoint"}, patient: true,
		},
		"no endpoint answers": {
			world: func(w *world) {
				w.theirs.mute["192.168.0.1:10250"], w.theirs.mute["192.168.0.2:10250"] = errors.New("refused"), errors.New("refused")
			},
			event: []string{silent, "endpoint 192.168.0.1:10250 cannot be asked: refused"}, patient: true,
		},
		"it does not serve the version any more": {
			world: func(w *world) { w.scaleMetricsServer(2, v1) },
			event: []string{silent, "endpoint 192.168.0.1:10250 does not serve it"},
		},
		"the annotation is no JSON":         {world: annotate("{"), event: []string{impossible, "unexpected end of JSON"}},
		"the annotation is empty":           {world: annotate(""), event: []string{impossible, "read annotation"}},
		"the annotation names no Service":   {world: annotate(`{"groupPriorityMinimum":1,"versionPriority":1}`), event: []string{impossible, "service.name"}},
		"the annotation's port is none":     {world: annotate(`{"service":{"namespace":"a","name":"b","port":70000},"groupPriorityMinimum":1,"versionPriority":1}`), event: []string{impossible, "service.port"}},
		"the annotation's priority is none": {world: annotate(`{"service":{"namespace":"a","name":"b"},"groupPriorityMinimum":1,"versionPriority":-4}`), event: []string{impossible, "versionPriority"}},
		"the annotation names our own Service": {
			world: annotate(`{"service":{"namespace":"operator-ns","name":"metrics-serving-cluster"},"groupPriorityMinimum":1,"versionPriority":1}`),
			event: []string{impossible, "which is this MetricsBackend's own"},
		},
		"the annotation verifies both ways": {
			world: annotate(`{"service":{"namespace":"a","name":"b"},"caBundle":"YQ==","insecureSkipTLSVerify":true,"groupPriorityMinimum":1,"versionPriority":1}`),
			event: []string{impossible, "caBundle is set although"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := prepared(t, "adopted", adoptedWorld)
			r := w.live(interceptor.Funcs{})
			tc.world(w)
			w.must(w.raw.Delete(context.Background(), w.backend()))
			mustReconcile(t, r)
			if waits := w.isRegistered(v1beta1); waits != tc.patient {
				t.Errorf("waits %t, want %t", waits, tc.patient)
			}
			if tc.patient {
				if c := w.condition(v1alpha1.ConditionReady); !strings.Contains(c.Message, "waits up to 30s for Service kube-system/metrics-server") {
					t.Errorf("Ready is %+v", c)
				}
			}
			w.settle(r, w.isGone)
			if err := w.raw.Get(context.Background(), client.ObjectKey{Name: "v1beta1.metrics.k8s.io"}, &apiregistrationv1.APIService{}); !apierrors.IsNotFound(err) {
				t.Errorf("the APIService is still there: %v", err)
			}
			if !recorded(r, tc.event...) {
				t.Errorf("no event %q", tc.event)
			}
		})
	}
}

// A version that a newer operator took over, and that this one may delete but not
// write, holds up nothing.
func TestHandBackIsForbidden(t *testing.T) {
	w := prepared(t, "adopted", adoptedWorld)
	r := w.live(intercepted(func(c call, make func() error) error {
		if c.name == "update *v1.APIService v1beta1.metrics.k8s.io" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, "v1beta1.metrics.k8s.io", errors.New("not by name"))
		}
		return make()
	}))
	w.must(w.raw.Delete(context.Background(), w.backend()))
	w.settle(r, w.isGone)
	if got := w.leadsNow(v1beta1); got != "" {
		t.Errorf("leads to %q", got)
	}
	if !recorded(r, "HandBackImpossible", "not by name") {
		t.Error("no event tells of it")
	}
}

// Pods of the previous owner that restart at this moment are waited for.
func TestHandBackIsPatient(t *testing.T) {
	w := prepared(t, "adopted", adoptedWorld)
	r := w.live(interceptor.Funcs{})
	w.scaleMetricsServer(0)
	w.must(w.raw.Delete(context.Background(), w.backend()))
	mustReconcile(t, r)
	w.clock.Step(handBackPatience - time.Second)
	mustReconcile(t, r)
	w.scaleMetricsServer(1, v1beta1)
	w.settle(r, w.isGone)
	if got := w.leadsNow(v1beta1); got != metricsServer {
		t.Errorf("leads to %q", got)
	}
}

// One endpoint of several that does not answer is no reason to take the API away.
func TestHandBackToWhoAnswersPartly(t *testing.T) {
	w := prepared(t, "adopted", adoptedWorld)
	r := w.live(interceptor.Funcs{})
	w.theirs.mute["192.168.0.1:10250"] = errors.New("refused")
	w.must(w.raw.Delete(context.Background(), w.backend()))
	w.settle(r, w.isGone)
	if got := w.leadsNow(v1beta1); got != metricsServer {
		t.Errorf("leads to %q", got)
	}
}

// Someone's change between the reading and the hand-back is not lost.
func TestHandBackRaces(t *testing.T) {
	w := prepared(t, "adopted", adoptedWorld)
	raced := false
	r := w.live(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if !raced {
				raced = true
				service := w.apiService(v1beta1)
				service.Labels["team"] = "metrics"
				w.must(w.raw.Update(ctx, service))
			}
			return c.Update(ctx, o, opts...)
		},
	})
	w.must(w.raw.Delete(context.Background(), w.backend()))
	w.settle(r, w.isGone)
	if got := w.apiService(v1beta1); !raced || got.Labels["team"] != "metrics" || w.leadsNow(v1beta1) != metricsServer {
		t.Errorf("raced %t, labels %v, leads to %s", raced, got.Labels, w.leadsNow(v1beta1))
	}
}

// An operator that ends with its namespace can ask nobody, and hands back to who has
// ready endpoints; to who has none it does not.
func TestRetireAllHandsBack(t *testing.T) {
	for endpoints, want := range map[int]string{0: "", 2: metricsServer} {
		w := prepared(t, "adopted", adoptedWorld)
		r := w.live(intercepted(func(c call, make func() error) error {
			if c.name == "create token" {
				return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "guest", errors.New("it is being terminated"))
			}
			return make()
		}))
		w.scaleMetricsServer(endpoints, v1beta1)
		w.must(r.RetireAll(t.Context()))
		if got := w.leadsNow(v1beta1); got != want {
			t.Errorf("with %d endpoints: leads to %q, want %q", endpoints, got, want)
		}
		if got := w.leadsNow(v1); got != "" {
			t.Errorf("v1 leads to %q", got)
		}
	}
}

// A kube-apiserver that has not seen the hand-back keeps our pods alive.
func TestHandBackIsConfirmed(t *testing.T) {
	w := prepared(t, "adopted", adoptedWorld)
	r := w.live(interceptor.Funcs{})
	w.replicas[1].lags = true
	defer func() { w.replicas[1].lags = false }()
	w.must(w.raw.Delete(context.Background(), w.backend()))
	for range 10 {
		mustReconcile(t, r)
		w.watchInvariant("after a reconciliation")
		w.step()
	}
	if w.leadsNow(v1beta1) != metricsServer || len(w.pods()) == 0 || w.everBroken != "" {
		t.Fatalf("leads to %s, %d pods, %s", w.leadsNow(v1beta1), len(w.pods()), w.everBroken)
	}
	if c := w.condition(v1alpha1.ConditionReady); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "kube-apiserver 192.0.2.2:6443 does not follow yet") {
		t.Errorf("Ready is %+v", c)
	}
	w.replicas[1].lags = false
	w.settle(r, w.isGone)
}
