// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package crdready

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// informers lack a kind until its CRD is installed.
type informers struct {
	cache.Informers
	installed time.Time
	looks     int
}

// GetInformer implements cache.Informers.
func (i *informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	i.looks++
	if time.Now().Before(i.installed) {
		return nil, &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.GroupName, Kind: "CustomMetric"}}
	}
	return nil, nil
}

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
				known := &informers{installed: time.Now().Add(tc.installed)}
				got := Await(ctx, known, clock.RealClock{}, &v1alpha1.CustomMetric{})
				if got != tc.want || known.looks != tc.looks {
					t.Errorf("%t after %d looks, want %t after %d", got, known.looks, tc.want, tc.looks)
				}
			})
		})
	}
}
