// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// TestTableCells: a pod's cells are the sums of its containers, as far as numbers go.
func TestTableCells(t *testing.T) {
	s := &storage{kind: pods}
	for name, test := range map[string]struct {
		usages []samplestore.Usage
		want   []any
	}{
		"one container":  {[]samplestore.Usage{{CPU: 1_500_000_000, Memory: 3 << 30}}, []any{"web-0", "1500m", "3Gi", "15.012s"}},
		"two containers": {[]samplestore.Usage{{CPU: 123_456_789, Memory: 64 << 20}, {CPU: 1, Memory: 1 << 10}}, []any{"web-0", "123456790n", "65537Ki", "15.012s"}},
		"no container":   {nil, []any{"web-0", "0", "0", "15.012s"}},
		"a sum that is too large": {
			[]samplestore.Usage{{CPU: 1<<64 - 1}, {CPU: 1<<64 - 1}}, []any{"web-0", "18446744073709551615n", "0", "15.012s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &object{kind: pods, point: &samplestore.Object{Key: samplestore.Key{Name: "web-0"}, Meta: &samplestore.Meta{}, Point: sample(0, test.usages...)}}
			table, err := s.ConvertToTable(t.Context(), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]any{test.want}, [][]any{table.Rows[0].Cells}); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTableWithoutHeaders is what a watch asks for from its second event on.
func TestTableWithoutHeaders(t *testing.T) {
	s := &storage{kind: pods}
	o := &object{kind: pods, point: &samplestore.Object{Key: samplestore.Key{Name: "web-0"}, Meta: &samplestore.Meta{}, Point: sample(0)}}
	table, err := s.ConvertToTable(t.Context(), o, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(table.ColumnDefinitions) != 0 || len(table.Rows) != 1 {
		t.Errorf("got %d columns and %d rows, want none and 1", len(table.ColumnDefinitions), len(table.Rows))
	}
}

// TestTableOfForeignObject holds that a mistake of ours ends as an error.
func TestTableOfForeignObject(t *testing.T) {
	s := &storage{kind: pods}
	if table, err := s.ConvertToTable(t.Context(), &metricsv1.PodMetrics{}, nil); err == nil {
		t.Errorf("got %v, want an error", table)
	}
}
