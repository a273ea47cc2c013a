// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
			kind, hint := watchFailure(tc.err)
			if kind != tc.want {
				t.Errorf("kind %q, want %q", kind, tc.want)
			}
			if (kind == "") != (hint == "") {
				t.Errorf("kind %q has the hint %q", kind, hint)
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
