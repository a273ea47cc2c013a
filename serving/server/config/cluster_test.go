// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestWatchFailure(t *testing.T) {
	backends := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "metricsbackends"}
	tests := map[string]struct {
		err  error
		want string
	}{
		"no CRD":            {apierrors.NewNotFound(backends, ""), "CRDMissing"},
		"no permission":     {apierrors.NewForbidden(backends, "", errors.New("no")), "Forbidden"},
		"no valid token":    {apierrors.NewUnauthorized("no"), "Forbidden"},
		"no connection":     {errors.New("connection refused"), "Unavailable"},
		"left to client-go": {apierrors.NewResourceExpired("too old"), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			reason, hint := (&reflectorStatus{resource: "metricsbackends.metricsbackend.io"}).classify(tc.err)
			if reason != tc.want {
				t.Errorf("reason %q, want %q", reason, tc.want)
			}
			if (reason == "") != (hint == "") {
				t.Errorf("reason %q has the hint %q", reason, hint)
			}
		})
	}
}

// kubeAPIServer answers lists by resource, as a server without WatchList. Watches of listed
// resources stay open.
func kubeAPIServer(t *testing.T, list func(resource string) (code int, body string)) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, body := list(path.Base(r.URL.Path))
		if code == http.StatusOK && r.URL.Query().Has("sendInitialEvents") {
			code, body = http.StatusUnprocessableEntity, statusOf(apierrors.NewInvalid(schema.GroupKind{}, "", nil))
		} else if code == http.StatusOK && r.URL.Query().Has("watch") {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL}
}

// statusOf returns an error as kube-apiserver encodes it.
func statusOf(err *apierrors.StatusError) string {
	b, _ := json.Marshal(err.Status())
	return string(b)
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return check(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestMetricsAreLimited: of too many metrics of a namespace the youngest is not used.
func TestMetricsAreLimited(t *testing.T) {
	var external []*v1alpha1.ExternalMetric
	var custom []*v1alpha1.CustomMetric
	for i := range v1alpha1.MaxMetricsPerNamespace + 1 {
		m := metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(i), CreationTimestamp: metav1.Unix(int64(i), 0)}
		external = append(external, &v1alpha1.ExternalMetric{ObjectMeta: m})
		custom = append(custom, &v1alpha1.CustomMetric{ObjectMeta: m})
	}
	var gotCustom []*v1alpha1.CustomMetric
	var gotExternal []*v1alpha1.ExternalMetric
	c, err := newClusterWatcher(&rest.Config{}, "cluster", nil, nil, Target{Metrics: func(custom []*v1alpha1.CustomMetric, external []*v1alpha1.ExternalMetric) {
		gotCustom, gotExternal = custom, external
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.setCustom(t.Context(), custom)
	c.setExternal(t.Context(), external)
	if diff := cmp.Diff(external[:v1alpha1.MaxMetricsPerNamespace], gotExternal); diff != "" {
		t.Errorf("ExternalMetrics (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(custom[:v1alpha1.MaxMetricsPerNamespace], gotCustom); diff != "" {
		t.Errorf("CustomMetrics (-want +got):\n%s", diff)
	}
}

// TestBackendApplied: after which responses of kube-apiserver the settings are known.
func TestBackendApplied(t *testing.T) {
	const list = `{"kind":"MetricsBackendList","apiVersion":"metricsbackend.io/v1alpha1","metadata":{"resourceVersion":"1"},"items":[%s]}`
	const object = `{"metadata":{"name":"cluster","uid":"a","generation":3,"resourceVersion":"1"},"spec":{"watch":{"mode":"Disabled"}}}`
	backends := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "metricsbackends"}
	tests := map[string]struct {
		code int
		body string
		// want is what it waits for in the end; empty for nothing.
		want    string
		applied int64
	}{
		"an object":     {code: http.StatusOK, body: fmt.Sprintf(list, object), applied: 3},
		"no object":     {code: http.StatusOK, body: fmt.Sprintf(list, "")},
		"no CRD":        {code: http.StatusNotFound, body: statusOf(apierrors.NewNotFound(backends, ""))},
		"no permission": {code: http.StatusForbidden, body: statusOf(apierrors.NewForbidden(backends, "", errors.New("no"))), want: forbidden},
		"out of order":  {code: http.StatusBadGateway, body: "{}", want: unavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			config := kubeAPIServer(t, func(string) (int, string) { return tc.code, tc.body })
			var applied atomic.Int64
			c, err := newClusterWatcher(config, "cluster", func(_ context.Context, _ string, b *v1alpha1.MetricsBackend) { applied.Store(b.Generation) }, func(context.Context) {}, (&fakeTarget{}).target())
			if err != nil {
				t.Fatal(err)
			}
			if c.backend.hasApplied() == nil {
				t.Error("applied before the first request")
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { c.backend.Run(ctx) })
			defer running.Wait()
			defer cancel()
			eventually(t, "it waits for "+tc.want, func() bool {
				got := ""
				if err := c.backend.hasApplied(); err != nil {
					got = err.Error()
				}
				return got == tc.want
			})
			if applied.Load() != tc.applied {
				t.Errorf("generation %d is applied, want %d", applied.Load(), tc.applied)
			}
		})
	}
}

func TestBackendChanges(t *testing.T) {
	object := func(uid types.UID, generation int64, version string) []*v1alpha1.MetricsBackend {
		return []*v1alpha1.MetricsBackend{{ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: uid, Generation: generation, ResourceVersion: version}}}
	}
	tests := map[string]struct {
		before, after []*v1alpha1.MetricsBackend
		want          int
		// defaults is how often the defaults are applied.
		defaults int
	}{
		"seen first":          {nil, object("a", 1, "1"), 1, 1},
		"none":                {nil, nil, 0, 2},
		"another spec":        {object("a", 1, "1"), object("a", 2, "2"), 2, 0},
		"another status":      {object("a", 1, "1"), object("a", 1, "2"), 1, 0},
		"the last APIService": {withAPIService(object("a", 1, "1")), object("a", 1, "2"), 2, 0},
		"a kubelet verified":  {object("a", 1, "1"), withVerifiedKubelet(object("a", 1, "2")), 2, 0},
		"recreated":           {object("a", 1, "1"), object("b", 1, "2"), 2, 0},
		"deleted":             {object("a", 1, "1"), nil, 1, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			applied, defaults := 0, 0
			c := &clusterWatcher{
				apply:         func(context.Context, string, *v1alpha1.MetricsBackend) { applied++ },
				applyDefaults: func(context.Context) { defaults++ },
			}
			c.applyBackend(t.Context(), tc.before)
			c.applyBackend(t.Context(), tc.after)
			if applied != tc.want || defaults != tc.defaults {
				t.Errorf("applied %d times and the defaults %d times, want %d and %d", applied, defaults, tc.want, tc.defaults)
			}
		})
	}
}

func withVerifiedKubelet(backends []*v1alpha1.MetricsBackend) []*v1alpha1.MetricsBackend {
	backends[0].Status.KubeletsVerified = true
	return backends
}

func withAPIService(backends []*v1alpha1.MetricsBackend) []*v1alpha1.MetricsBackend {
	backends[0].Status.APIServices = []v1alpha1.APIServiceStatus{{Name: "v1.metrics.k8s.io"}}
	return backends
}

// TestDeclaredApplied: each kind is read independently, and has no objects while its CRD is
// missing.
func TestDeclaredApplied(t *testing.T) {
	list := func(kind string, names ...string) string {
		var items []string
		for _, name := range names {
			items = append(items, `{"metadata":{"name":"`+name+`","namespace":"shop","resourceVersion":"1","generation":1}}`)
		}
		return `{"kind":"` + kind + `List","apiVersion":"metricsbackend.io/v1alpha1","metadata":{"resourceVersion":"1"},"items":[` + strings.Join(items, ",") + `]}`
	}
	tests := map[string]struct {
		// resource is the only one with a CRD; empty for none.
		resource string
		code     int
		body     string
		want     declared
		// waits is what it waits for in the end.
		waits string
	}{
		"no CRDs": {want: declared{PoliciesSet: true, MetricsSet: true}},
		"metrics": {
			resource: "externalmetrics", code: 200, body: list("ExternalMetric", "b", "a"),
			want: declared{PoliciesSet: true, MetricsSet: true, External: []string{"shop/a", "shop/b"}},
		},
		"policies": {
			resource: "externalmetricspolicies", code: 200, body: list("ExternalMetricsPolicy", "p"),
			want: declared{PoliciesSet: true, MetricsSet: true, Policies: []string{"shop/p"}},
		},
		"no permission for policies": {
			resource: "externalmetricspolicies", code: 403, body: statusOf(apierrors.NewForbidden(schema.GroupResource{}, "", nil)),
			want: declared{MetricsSet: true}, waits: "ExternalMetricsPolicies: Forbidden",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			config := kubeAPIServer(t, func(resource string) (int, string) {
				if resource == tc.resource {
					return tc.code, tc.body
				}
				return http.StatusNotFound, statusOf(apierrors.NewNotFound(schema.GroupResource{}, ""))
			})
			target := &fakeTarget{}
			c, err := newClusterWatcher(config, "cluster", nil, func(context.Context) {}, target.target())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { c.run(ctx) })
			defer running.Wait()
			defer cancel()
			eventually(t, "everything was read", func() bool {
				target.mu.Lock()
				defer target.mu.Unlock()
				waits := ""
				if err := c.declaredApplied(); err != nil {
					waits = err.Error()
				}
				return waits == tc.waits && cmp.Equal(target.declared, tc.want)
			})
		})
	}
}

// TestSpecChanged: an update of the status is no change.
func TestSpecChanged(t *testing.T) {
	object := func(name string, generation int64, version string) *v1alpha1.ExternalMetric {
		return &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Generation: generation, ResourceVersion: version, Name: name}}
	}
	tests := map[string]struct {
		before, after any
		want          bool
	}{
		"another status":              {object("a", 1, "1"), object("a", 1, "2"), false},
		"another spec":                {object("a", 1, "1"), object("a", 2, "2"), true},
		"without a generation":        {object("a", 0, "1"), object("a", 0, "2"), true},
		"without a generation, again": {object("a", 0, "1"), object("a", 0, "1"), false},
		"no object":                   {"a", object("a", 1, "1"), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := specChanged(tc.before, tc.after); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
