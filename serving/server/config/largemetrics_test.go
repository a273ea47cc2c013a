// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var largeQuery = strings.Repeat("x", v1alpha1.LargeMetric)

func metricOf(name string, uid types.UID, generation int64, query string) *v1alpha1.ExternalMetric {
	m := &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid, Generation: generation}}
	m.Spec.Query = query
	return m
}

// cached returns the metric as the informer holds it.
func cached(t *testing.T, m *v1alpha1.ExternalMetric) *v1alpha1.ExternalMetric {
	t.Helper()
	trimmed, err := trim(m.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	return trimmed.(*v1alpha1.ExternalMetric)
}

// TestLargeMetrics: what is used after the metrics were read before, and have changed.
func TestLargeMetrics(t *testing.T) {
	before := metricOf("a", "1", 1, largeQuery)
	small := metricOf("small", "s", 1, "up")
	notFound := apierrors.NewNotFound(schema.GroupResource{}, "a")
	tests := map[string]struct {
		// now is what the informer holds, besides small; nil for nothing.
		now *v1alpha1.ExternalMetric
		// answer and err are kube-apiserver's.
		answer *v1alpha1.ExternalMetric
		err    error
		// want is the query that is used; empty if the metric is left out.
		want  string
		reads int
		fails string
	}{
		"unchanged":         {now: before, want: largeQuery},
		"changed":           {now: metricOf("a", "1", 2, largeQuery+"2"), answer: metricOf("a", "1", 2, largeQuery+"2"), want: largeQuery + "2", reads: 1},
		"changed meanwhile": {now: metricOf("a", "1", 2, largeQuery+"2"), answer: metricOf("a", "1", 3, "small now"), want: "small now", reads: 1},
		"changed to small":  {now: metricOf("a", "1", 2, "small now"), want: "small now"},
		"created again":     {now: metricOf("a", "2", 1, largeQuery+"2"), answer: metricOf("a", "2", 1, largeQuery+"2"), want: largeQuery + "2", reads: 1},
		"created again meanwhile": {
			now: metricOf("a", "1", 2, largeQuery), answer: metricOf("a", "2", 1, largeQuery), reads: 1,
		},
		"deleted":           {},
		"deleted meanwhile": {now: metricOf("a", "1", 2, largeQuery), err: notFound, reads: 1},
		"cannot be read": {
			now: metricOf("a", "1", 2, largeQuery+"2"), err: errors.New("refused"), want: largeQuery, reads: 1,
			fails: "1 of 1 large metrics could not be read: read shop/a: refused",
		},
		"another cannot be read": {
			now: metricOf("b", "2", 1, largeQuery), err: errors.New("refused"), reads: 1,
			fails: "1 of 1 large metrics could not be read: read shop/b: refused",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			reads, answer, failure := 0, before, error(nil)
			large := &largeMetrics[*v1alpha1.ExternalMetric]{get: func(context.Context, string, string) (*v1alpha1.ExternalMetric, error) {
				reads++
				return answer.DeepCopy(), failure
			}}
			first, err := large.complete(t.Context(), []*v1alpha1.ExternalMetric{small, cached(t, before)})
			if diff := cmp.Diff([]*v1alpha1.ExternalMetric{small, before}, first); err != nil || diff != "" {
				t.Fatalf("at first: %v (-want +got):\n%s", err, diff)
			}
			reads, answer, failure = 0, tc.answer, tc.err
			used := []*v1alpha1.ExternalMetric{small}
			if tc.now != nil {
				used = append(used, cached(t, tc.now))
			}
			got, err := large.complete(t.Context(), used)
			if message := fmt.Sprint(err); message != tc.fails && (err != nil || tc.fails != "") {
				t.Errorf("error %q, want %q", message, tc.fails)
			}
			if reads != tc.reads {
				t.Errorf("%d reads, want %d", reads, tc.reads)
			}
			query := ""
			if len(got) > 1 {
				query = got[1].Spec.Query
			}
			if len(got) == 0 || got[0] != small || query != tc.want {
				t.Errorf("query %.20q of %d bytes, want %.20q of %d", query, len(query), tc.want, len(tc.want))
			}
		})
	}
}

// TestLargeMetricsTimeout: a kube-apiserver that does not answer holds up the other metrics for
// one pass only.
func TestLargeMetricsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := &largeMetrics[*v1alpha1.ExternalMetric]{get: func(ctx context.Context, _, _ string) (*v1alpha1.ExternalMetric, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		small := metricOf("small", "s", 1, "up")
		used := []*v1alpha1.ExternalMetric{small}
		for i := range 10 * largeMetricsWorkers {
			used = append(used, cached(t, metricOf(fmt.Sprint(i), types.UID(fmt.Sprint(i)), 1, largeQuery)))
		}
		got, err := large.complete(t.Context(), used)
		if diff := cmp.Diff([]*v1alpha1.ExternalMetric{small}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "80 of 80 large metrics could not be read: read shop/") {
			t.Errorf("error %v", err)
		}
	})
}
