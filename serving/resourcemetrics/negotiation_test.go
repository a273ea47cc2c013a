// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	auditpolicy "k8s.io/apiserver/pkg/audit/policy"
	genericapiserver "k8s.io/apiserver/pkg/server"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// TestAccept holds that every encoding says the same.
func TestAccept(t *testing.T) {
	server := serve(t, listStore(), enableAll)
	paths := []string{"pods", "namespaces/shop/pods", "namespaces/shop/pods/web-0", "nodes", "nodes/node-a", "namespaces/nobody/pods", "pods?limit=2"}
	tests := map[string]struct {
		accept, query, contentType string
	}{
		"YAML":               {accept: "application/yaml", contentType: "application/yaml"},
		"protobuf":           {accept: "application/vnd.kubernetes.protobuf", contentType: "application/vnd.kubernetes.protobuf"},
		"protobuf preferred": {accept: "application/vnd.kubernetes.protobuf,application/json", contentType: "application/vnd.kubernetes.protobuf"},
		"CBOR":               {accept: "application/cbor", contentType: "application/cbor"},
		"pretty JSON":        {accept: "application/json;pretty=1", contentType: "application/json"},
		"pretty by query":    {accept: "application/json", query: "pretty=true", contentType: "application/json"},
		"a foreign first":    {accept: "text/html, application/json;q=0.9", contentType: "application/json"},
		"kubectl's":          {accept: "application/json;as=Table;v=v9;g=meta.k8s.io,application/json", contentType: "application/json"},
		"anything":           {accept: "*/*", contentType: "application/json"},
	}
	for _, version := range GroupVersions() {
		for _, path := range paths {
			url := "/apis/" + version.String() + "/" + path
			want := decodeAny(t, get(t, server, url, "application/json"))
			if got := want.GetObjectKind().GroupVersionKind().GroupVersion(); got != version {
				t.Fatalf("%s answers in version %s", url, got)
			}
			for name, test := range tests {
				t.Run(version.Version+" "+path+" as "+name, func(t *testing.T) {
					query := url
					if test.query != "" {
						separator := "?"
						if bytes.ContainsRune([]byte(url), '?') {
							separator = "&"
						}
						query += separator + test.query
					}
					a := get(t, server, query, test.accept)
					if got := a.header.Get("Content-Type"); got != test.contentType {
						t.Errorf("got Content-Type %q, want %q", got, test.contentType)
					}
					if diff := cmp.Diff(want, decodeAny(t, a), sameQuantity, cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("object (-JSON +%s):\n%s", name, diff)
					}
				})
			}
		}
	}
}

// decodeAny decodes an answer in whatever encoding it has, without conversion.
func decodeAny(t testing.TB, a answer) runtime.Object {
	t.Helper()
	if a.code != http.StatusOK {
		t.Fatalf("got code %d: %s", a.code, a.body)
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), a.header.Get("Content-Type"))
	if !ok {
		t.Fatalf("got Content-Type %q", a.header.Get("Content-Type"))
	}
	obj, gvk, err := info.Serializer.Decode(a.body, nil, nil)
	if err != nil {
		t.Fatalf("decoding %s: %v", a.body, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(*gvk)
	return obj
}

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

// TestPartialObjectMetadata is what metadata informers and garbage collectors ask for.
func TestPartialObjectMetadata(t *testing.T) {
	server := serve(t, listStore(), enableAll)
	tests := map[string]struct {
		path, as string
		want     []string
	}{
		"pod":   {path: "namespaces/shop/pods/web-0", as: "PartialObjectMetadata", want: []string{"web-0"}},
		"pods":  {path: "namespaces/shop/pods", as: "PartialObjectMetadataList", want: []string{"db-0", "web-0", "web-1"}},
		"nodes": {path: "nodes", as: "PartialObjectMetadataList", want: []string{"node-a", "node-b"}},
		"page":  {path: "nodes?limit=1", as: "PartialObjectMetadataList", want: []string{"node-a"}},
		"none":  {path: "namespaces/nobody/pods", as: "PartialObjectMetadataList"},
	}
	for name, test := range tests {
		for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			t.Run(name+" as "+mediaType, func(t *testing.T) {
				a := get(t, server, "/apis/metrics.k8s.io/v1/"+test.path, mediaType+";as="+test.as+";v=v1;g=meta.k8s.io")
				if a.code != http.StatusOK {
					t.Fatalf("got code %d: %s", a.code, a.body)
				}
				obj, _, err := metainternalscheme.Codecs.UniversalDeserializer().Decode(a.body, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				visit := func(item runtime.Object) error {
					m, err := meta.Accessor(item)
					if err == nil {
						got = append(got, m.GetName())
					}
					return err
				}
				if meta.IsListType(obj) {
					err = meta.EachListItem(obj, visit)
				} else {
					err = visit(obj)
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("names (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestGzip holds that large lists are compressed for those who ask, and small
// ones are not: the API server goes by the size of the first write.
func TestGzip(t *testing.T) {
	large, small := newStore(), newStore()
	for i := range 1000 {
		put(large.Pods, "shop", fmt.Sprintf("web-%d", i), nil, sample(0, manyUsages(3)...))
	}
	put(small.Pods, "shop", "web-0", nil, sample(0, manyUsages(3)...))
	tests := map[string]struct {
		store    *point.Store
		encoding string
	}{
		"large": {store: large, encoding: "gzip"},
		"small": {store: small},
	}
	for name, test := range tests {
		server := serve(t, test.store, enableAll)
		for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			t.Run(name+" as "+mediaType, func(t *testing.T) {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/apis/metrics.k8s.io/v1/pods", nil)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Accept", mediaType)
				request.Header.Set("Accept-Encoding", "gzip")
				response, err := server.Client().Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				if got := response.Header.Get("Content-Encoding"); got != test.encoding {
					t.Errorf("got Content-Encoding %q, want %q", got, test.encoding)
				}
				body := io.Reader(response.Body)
				if response.Header.Get("Content-Encoding") == "gzip" {
					if body, err = gzip.NewReader(response.Body); err != nil {
						t.Fatal(err)
					}
				}
				got, err := io.ReadAll(body)
				if err != nil {
					t.Fatal(err)
				}
				if want := get(t, server, "/apis/metrics.k8s.io/v1/pods", mediaType).body; !bytes.Equal(got, want) {
					t.Errorf("compressed and plain answer differ in %d and %d bytes", len(got), len(want))
				}
			})
		}
	}
}

// TestAudit holds that the audit log shows an answer as the client got it, at
// the level that logs whole answers, with managed fields taken out or not.
func TestAudit(t *testing.T) {
	for _, omitManagedFields := range []bool{false, true} {
		for _, path := range []string{"namespaces/shop/pods", "namespaces/shop/pods/web-0", "nodes"} {
			t.Run(fmt.Sprintf("%s, omitManagedFields=%v", path, omitManagedFields), func(t *testing.T) {
				log := &auditLog{}
				server := serve(t, listStore(), enableAll, func(c *genericapiserver.Config) {
					c.AuditBackend = log
					c.AuditPolicyRuleEvaluator = auditpolicy.NewPolicyRuleEvaluator(&auditinternal.Policy{
						OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
						Rules:      []auditinternal.PolicyRule{{Level: auditinternal.LevelRequestResponse, OmitManagedFields: &omitManagedFields}},
					})
				})
				a := get(t, server, "/apis/metrics.k8s.io/v1/"+path, "")
				if diff := cmp.Diff([]string{string(a.body)}, log.answers()); diff != "" {
					t.Errorf("audited answers (-sent +logged):\n%s", diff)
				}
			})
		}
	}
}

// auditLog keeps the answers of audit events.
type auditLog struct {
	mu     sync.Mutex
	bodies []string
}

var _ audit.Backend = &auditLog{}

func (l *auditLog) ProcessEvents(events ...*auditinternal.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		if e.ResponseObject != nil {
			l.bodies = append(l.bodies, string(e.ResponseObject.Raw))
		}
	}
	return true
}

func (l *auditLog) answers() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bodies
}

func (l *auditLog) Run(<-chan struct{}) error { return nil }
func (l *auditLog) Shutdown()                 {}
func (l *auditLog) String() string            { return "kept in memory" }
