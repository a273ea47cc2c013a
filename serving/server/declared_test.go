// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// given is what a fakeDeclaredTarget was told last.
type given struct {
	Governed, Declared         bool
	Policies, Custom, External []string
}

type fakeDeclaredTarget struct {
	mu sync.Mutex
	given
}

func names[T metaObject](objects []T) []string {
	var all []string
	for _, o := range objects {
		all = append(all, o.GetNamespace()+"/"+o.GetName())
	}
	return all
}

func (f *fakeDeclaredTarget) declare(custom []*v1alpha1.CustomMetric, external []*v1alpha1.ExternalMetric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Declared, f.Custom, f.External = true, names(custom), names(external)
}

func (f *fakeDeclaredTarget) govern(_ context.Context, policies []*v1alpha1.ExternalMetricsPolicy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Governed, f.Policies = true, names(policies)
}

// TestDeclaredFollower: each kind is read by itself; where its CRD is missing there is
// nothing of it, and that is known.
func TestDeclaredFollower(t *testing.T) {
	list := func(kind string, names ...string) string {
		var items []string
		for _, name := range names {
			items = append(items, `{"metadata":{"name":"`+name+`","namespace":"shop","resourceVersion":"1","generation":1}}`)
		}
		return `{"kind":"` + kind + `List","apiVersion":"metricsbackend.io/v1alpha1","metadata":{"resourceVersion":"1"},"items":[` + strings.Join(items, ",") + `]}`
	}
	tests := map[string]struct {
		// resource is the one whose CRD there is; empty for none.
		resource string
		code     int
		body     string
		want     given
		// waits is what is waited for in the end.
		waits string
	}{
		"no CRDs": {want: given{Governed: true, Declared: true}},
		"metrics": {
			resource: "externalmetrics", code: 200, body: list("ExternalMetric", "b", "a"),
			want: given{Governed: true, Declared: true, External: []string{"shop/a", "shop/b"}},
		},
		"policies": {
			resource: "externalmetricspolicies", code: 200, body: list("ExternalMetricsPolicy", "p"),
			want: given{Governed: true, Declared: true, Policies: []string{"shop/p"}},
		},
		"no permission for policies": {
			resource: "externalmetricspolicies", code: 403, body: statusOf(apierrors.NewForbidden(schema.GroupResource{}, "", nil)),
			want: given{Declared: true}, waits: "ExternalMetricsPolicies: Forbidden",
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
			target := &fakeDeclaredTarget{}
			f, err := newDeclaredFollower(config, target)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { f.run(ctx) })
			defer running.Wait()
			defer cancel()
			eventuallyTrue(t, "everything was read", func() bool {
				target.mu.Lock()
				defer target.mu.Unlock()
				waits := ""
				if err := f.read(); err != nil {
					waits = err.Error()
				}
				return waits == tc.waits && cmp.Equal(target.given, tc.want)
			})
		})
	}
}

// TestSpecChanged: a status that the operator writes makes nothing anew.
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

// TestFileDeclares: further documents are what is declared beside the MetricsBackend.
func TestFileDeclares(t *testing.T) {
	const head = "---\napiVersion: metricsbackend.io/v1alpha1\n"
	const metric = head + "kind: ExternalMetric\nmetadata: {name: m, namespace: shop}\nspec: {query: up}\n"
	const custom = head + "kind: CustomMetric\nmetadata: {name: c, namespace: shop}\nspec: {query: up, describes: {resource: pods, nameLabel: pod}}\n"
	const policy = head + "kind: ExternalMetricsPolicy\nmetadata: {name: p}\nspec: {rules: [{metric: .*, deny: true}]}\n"
	tests := map[string]struct {
		content string
		want    given
		wantErr string
	}{
		"nothing": {content: backendManifest("20s"), want: given{Governed: true, Declared: true}},
		"everything": {content: policy + "---\n" + backendManifest("20s") + metric + custom, want: given{
			Governed: true, Declared: true, Policies: []string{"/p"}, Custom: []string{"shop/c"}, External: []string{"shop/m"},
		}},
		"no MetricsBackend": {content: metric, wantErr: "must hold the manifest of a MetricsBackend"},
		"no namespace":      {content: backendManifest("20s") + strings.Replace(metric, ", namespace: shop", "", 1), wantErr: `ExternalMetric "m" has no metadata.namespace`},
		"no name":           {content: backendManifest("20s") + strings.Replace(policy, "name: p", "", 1), wantErr: "has no metadata.name"},
		"an unknown field":  {content: backendManifest("20s") + strings.Replace(metric, "query: up", "query: up, quarry: down", 1), wantErr: "quarry"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := decodeManifest([]byte(tc.content))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one that mentions %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := &fakeDeclaredTarget{}
			m.give(t.Context(), got)
			if diff := cmp.Diff(tc.want, got.given); diff != "" {
				t.Errorf("declared (-want +got):\n%s", diff)
			}
			if len(m.external) > 0 && m.external[0].Spec.MetricName != "m" {
				t.Error("the defaults are not filled in")
			}
		})
	}
}
