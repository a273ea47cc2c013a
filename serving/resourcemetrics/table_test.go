// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// tableRow is what matters about a row of a Table.
type tableRow struct {
	Cells  []any
	Kind   string
	Object string
}

func TestTable(t *testing.T) {
	store := newStore()
	put(store.Nodes, "", "node-a", nil, sample(0, point.Usage{CPU: 1_500_000_000, Memory: 3 << 30}))
	put(store.Pods, "shop", "web-0", map[string]string{"app": "web"}, sample(0,
		point.Usage{Name: "app", CPU: 123_456_789, Memory: 64 << 20},
		point.Usage{Name: "proxy", CPU: 1, Memory: 1 << 10}))
	put(store.Pods, "shop", "web-1", nil, sample(-1e9))
	put(store.Pods, "shop", "web-2", nil, sample(-2e9, point.Usage{Name: "app", CPU: 1<<64 - 1}, point.Usage{Name: "b", CPU: 1<<64 - 1}))
	server := serve(t, store, enableAll)

	columns := []string{"Name", "cpu", "memory", "Window"}
	web0 := []any{"web-0", "123456790n", "65537Ki", "15.012s"}
	tests := map[string]struct {
		path    string
		columns []string
		meta    metav1.ListMeta
		rows    []tableRow
	}{
		"node": {
			path: "nodes/node-a", columns: columns,
			meta: metav1.ListMeta{ResourceVersion: "1788091200250"},
			rows: []tableRow{{Cells: []any{"node-a", "1500m", "3Gi", "15.012s"}, Kind: "PartialObjectMetadata", Object: "node-a"}},
		},
		"nodes": {
			path: "nodes", columns: columns,
			meta: metav1.ListMeta{ResourceVersion: "1788091200250"},
			rows: []tableRow{{Cells: []any{"node-a", "1500m", "3Gi", "15.012s"}, Kind: "PartialObjectMetadata", Object: "node-a"}},
		},
		"pods": {
			path: "pods", columns: columns,
			meta: metav1.ListMeta{ResourceVersion: "1788091200250"},
			rows: []tableRow{
				{Cells: web0, Kind: "PartialObjectMetadata", Object: "web-0"},
				{Cells: []any{"web-1", "0", "0", "15.012s"}, Kind: "PartialObjectMetadata", Object: "web-1"},
				{Cells: []any{"web-2", "18446744073709551615n", "0", "15.012s"}, Kind: "PartialObjectMetadata", Object: "web-2"},
			},
		},
		"a page, as kubectl asks": {
			path: "namespaces/shop/pods?limit=1&includeObject=Metadata", columns: columns,
			meta: metav1.ListMeta{
				ResourceVersion: "1788091200250", RemainingItemCount: new(int64(2)),
				Continue: encodeContinue(point.Key{Namespace: "shop", Name: "web-0"}, 1788091200250),
			},
			rows: []tableRow{{Cells: web0, Kind: "PartialObjectMetadata", Object: "web-0"}},
		},
		"the last page": {
			path: "namespaces/shop/pods?limit=1&continue=" + encodeContinue(point.Key{Namespace: "shop", Name: "web-1"}, 1788091200250), columns: columns,
			meta: metav1.ListMeta{ResourceVersion: "1788091200250"},
			rows: []tableRow{{Cells: []any{"web-2", "18446744073709551615n", "0", "15.012s"}, Kind: "PartialObjectMetadata", Object: "web-2"}},
		},
		"with objects": {
			path: "namespaces/shop/pods?labelSelector=app&includeObject=Object", columns: columns,
			meta: metav1.ListMeta{ResourceVersion: "1788091200250"},
			rows: []tableRow{{Cells: web0, Kind: "PodMetrics", Object: "web-0"}},
		},
		"without objects": {
			path: "namespaces/shop/pods?labelSelector=app&includeObject=None", columns: columns,
			meta: metav1.ListMeta{ResourceVersion: "1788091200250"},
			rows: []tableRow{{Cells: web0}},
		},
		"nothing": {
			path: "namespaces/nobody/pods", columns: columns,
			meta: metav1.ListMeta{ResourceVersion: "1"},
			rows: []tableRow{},
		},
	}
	for name, test := range tests {
		for _, version := range GroupVersions() {
			t.Run(version.Version+" "+name, func(t *testing.T) {
				a := get(t, server, "/apis/"+version.String()+"/"+test.path, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
				var table metav1.Table
				decode(t, a, &table)
				if table.Kind != "Table" {
					t.Fatalf("got kind %q", table.Kind)
				}
				var names []string
				for _, c := range table.ColumnDefinitions {
					names = append(names, c.Name)
				}
				if diff := cmp.Diff(test.columns, names); diff != "" {
					t.Errorf("columns (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.meta, table.ListMeta); diff != "" {
					t.Errorf("metadata (-want +got):\n%s", diff)
				}
				rows := []tableRow{}
				for _, r := range table.Rows {
					row := tableRow{Cells: r.Cells}
					if r.Object.Raw != nil {
						var object metav1.PartialObjectMetadata
						if err := json.Unmarshal(r.Object.Raw, &object); err != nil {
							t.Fatal(err)
						}
						row.Kind, row.Object = object.Kind, object.Name
						if object.Kind == "PodMetrics" && object.APIVersion != version.String() {
							t.Errorf("got an object of %s", object.APIVersion)
						}
					}
					rows = append(rows, row)
				}
				if diff := cmp.Diff(test.rows, rows); diff != "" {
					t.Errorf("rows (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestTableWithoutHeaders is what a watch asks for from its second event on.
func TestTableWithoutHeaders(t *testing.T) {
	s := &storage{kind: pods}
	o := &object{kind: pods, point: &point.Object{Key: point.Key{Name: "web-0"}, Meta: &point.Meta{}, Point: sample(0)}}
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
