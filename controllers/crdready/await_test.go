// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package crdready

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

type discovery struct {
	client.Client
	found func() error
}

// IsObjectNamespaced implements client.Client.
func (d discovery) IsObjectNamespaced(apiruntime.Object) (bool, error) { return true, d.found() }

func TestAwait(t *testing.T) {
	cases := map[string]struct {
		installed, gaveUp time.Duration
		want              bool
		looks             int
	}{
		"it is there":         {want: true, gaveUp: time.Hour, looks: 1},
		"it comes":            {installed: 150 * time.Second, gaveUp: time.Hour, want: true, looks: 4},
		"it ends before":      {installed: time.Hour, gaveUp: 90 * time.Second, looks: 2},
		"it ends at its look": {installed: time.Hour, gaveUp: 0, looks: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.gaveUp)
				defer cancel()
				installed, looks := time.Now().Add(tc.installed), 0
				found := func() error {
					if looks++; time.Now().Before(installed) {
						return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.GroupName, Kind: "CustomMetric"}}
					}
					return nil
				}
				got := Await(ctx, discovery{found: found}, clock.RealClock{}, &v1alpha1.CustomMetric{})
				if got != tc.want || looks != tc.looks {
					t.Errorf("%t after %d looks, want %t after %d", got, looks, tc.want, tc.looks)
				}
			})
		})
	}
}
