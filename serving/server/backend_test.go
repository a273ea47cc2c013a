// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestWatchFailure(t *testing.T) {
	backends := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "metricsbackends"}
	tests := map[string]struct {
		err  error
		want string
	}{
		"no CRD":                 {apierrors.NewNotFound(backends, ""), "CRDMissing"},
		"no permission":          {apierrors.NewForbidden(backends, "", errors.New("no")), "Forbidden"},
		"no valid token":         {apierrors.NewUnauthorized("no"), "Forbidden"},
		"nobody listens":         {errors.New("connection refused"), "Unavailable"},
		"client-go's own matter": {apierrors.NewResourceExpired("too old"), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kind, hint := (&followed{resource: "metricsbackends.metricsbackend.io"}).failure(tc.err)
			if kind != tc.want {
				t.Errorf("kind %q, want %q", kind, tc.want)
			}
			if (kind == "") != (hint == "") {
				t.Errorf("kind %q has the hint %q", kind, hint)
			}
		})
	}
}

// kubeAPIServer answers lists by resource, as a server without WatchList. Watches of what
// it lists stay open.
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

// statusOf is how kube-apiserver writes an error.
func statusOf(err *apierrors.StatusError) string {
	b, _ := json.Marshal(err.Status())
	return string(b)
}

// TestBackendRead: from which answers of kube-apiserver on it is known which
// settings to serve with.
func TestBackendRead(t *testing.T) {
	const list = `{"kind":"MetricsBackendList","apiVersion":"metricsbackend.io/v1alpha1","metadata":{"resourceVersion":"1"},"items":[%s]}`
	const object = `{"metadata":{"name":"cluster","uid":"a","generation":3,"resourceVersion":"1"},"spec":{"watch":{"mode":"Disabled"}}}`
	backends := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "metricsbackends"}
	tests := map[string]struct {
		code int
		body string
		// want is what the wait is for in the end; empty where there is none.
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
			f, err := newBackendFollower(config, "cluster", func(_ context.Context, b *v1alpha1.MetricsBackend) { applied.Store(b.Generation) })
			if err != nil {
				t.Fatal(err)
			}
			if f.read() == nil {
				t.Error("known before anything was asked")
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { f.run(ctx) })
			defer running.Wait()
			defer cancel()
			eventuallyTrue(t, "it waits for "+tc.want, func() bool {
				got := ""
				if err := f.read(); err != nil {
					got = err.Error()
				}
				return got == tc.want
			})
			if applied.Load() != tc.applied {
				t.Errorf("generation %d is in force, want %d", applied.Load(), tc.applied)
			}
		})
	}
}

// TestFollow: only settings that are to come from the cluster are waited for.
func TestFollow(t *testing.T) {
	tests := map[string]struct {
		backend string
		file    *backendFile
		// read and declared are what is waited for at first.
		read, declared string
	}{
		"neither": {},
		"file":    {backend: "cluster", file: &backendFile{}, declared: "the file was not put into force yet"},
		"cluster": {
			backend: "cluster", read: "no answer from kube-apiserver yet",
			declared: "ExternalMetricsPolicies: no answer from kube-apiserver yet",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := &Options{Backend: tc.backend}
			f, err := o.follow(&rest.Config{Host: "127.0.0.1:1"}, &beginning{file: tc.file}, &parts{})
			if err != nil {
				t.Fatal(err)
			}
			for what, check := range map[string]struct {
				wait func() error
				want string
			}{"settings": {f.read, tc.read}, "declarations": {f.declared, tc.declared}} {
				got := ""
				if err := check.wait(); err != nil {
					got = err.Error()
				}
				if got != check.want {
					t.Errorf("waits for %s: %q, want %q", what, got, check.want)
				}
			}
		})
	}
}

func TestBackendChanges(t *testing.T) {
	object := func(uid types.UID, generation int64, version string) *v1alpha1.MetricsBackend {
		return &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: uid, Generation: generation, ResourceVersion: version}}
	}
	tests := map[string]struct {
		old, obj any
		want     bool
	}{
		"seen first":     {nil, object("a", 1, "1"), true},
		"another spec":   {object("a", 1, "1"), object("a", 2, "2"), true},
		"another status": {object("a", 1, "1"), object("a", 1, "2"), false},
		"recreated":      {object("a", 1, "1"), object("b", 1, "2"), true},
		"something else": {nil, cache.DeletedFinalStateUnknown{Key: "cluster"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			applied := false
			f := &backendFollower{name: "cluster", apply: func(_ context.Context, _ *v1alpha1.MetricsBackend) { applied = true }}
			f.changed(t.Context(), tc.old, tc.obj)
			if applied != tc.want {
				t.Errorf("applied: %t, want %t", applied, tc.want)
			}
		})
	}
}
