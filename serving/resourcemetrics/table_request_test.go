// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

const (
	tableV1      = "application/json;as=Table;v=v1;g=meta.k8s.io"
	tableV1beta1 = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
	// kubectlTable is what kubectl sends.
	kubectlTable = tableV1 + "," + tableV1beta1 + ",application/json"
)

// TestTableLists compares complete responses with those of an API server that converts lists to Tables
// itself.
func TestTableLists(t *testing.T) {
	store := recordedStore()
	server := serve(t, store, enableAll)
	stock := apiserver.New(t, Scheme, GetOpenAPIDefinitions)
	group := newAPIGroup(store, newStreams(store), available, enableAll)
	if err := stock.InstallAPIGroup(&group); err != nil {
		t.Fatal(err)
	}
	stock.PrepareRun()
	stockServer := httptest.NewServer(stock.Handler)
	t.Cleanup(stockServer.Close)

	accepts := map[string]string{
		"kubectl":          kubectlTable,
		"no alternative":   tableV1,
		"v1beta1":          tableV1beta1,
		"pretty":           tableV1 + ";pretty=1",
		"YAML":             "application/yaml;as=Table;v=v1;g=meta.k8s.io",
		"protobuf":         "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io," + tableV1,
		"any":              "*/*;as=Table;v=v1;g=meta.k8s.io",
		"by quality":       "application/json;q=0.5," + tableV1 + ";q=0.9,application/yaml;q=0.8",
		"list preferred":   "application/json," + tableV1 + ";q=0.9",
		"metadata first":   "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io," + tableV1,
		"unknown version":  "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
		"many clauses":     strings.Repeat("text/html,", 30) + kubectlTable,
		"a server version": "application/json;sv=v1," + tableV1,
	}
	paths := []string{
		"pods", "nodes", "namespaces/zoo/pods", "namespaces/nobody/pods", "pods?limit=2", "pods?labelSelector=app%3Dweb",
		"pods?fieldSelector=metadata.name%3Dweb-0", "pods?pretty=1", "namespaces/nobody/pods?pretty=1",
		"pods?includeObject=None", "pods?includeObject=Metadata", "pods?includeObject=Object", "pods?includeObject=Object&pretty=1",
		"pods?includeObject=Everything", "pods?continue=!!", "pods?labelSelector=a%20b%20c", "pods?limit=nonsense",
		"namespaces/shop/pods/web-0",
	}
	for name, accept := range accepts {
		t.Run(name, func(t *testing.T) {
			for _, version := range GroupVersions() {
				for _, p := range paths {
					path := "/apis/" + version.String() + "/" + p
					var want, got bytes.Buffer
					record(&want, path, accept, get(t, stockServer, path, accept))
					record(&got, path, accept, get(t, server, path, accept))
					if diff := cmp.Diff(want.String(), got.String()); diff != "" {
						t.Errorf("response (-stock +ours):\n%s", diff)
					}
				}
			}
		})
	}
}

// TestAsListRequest holds which requests the list itself answers with a Table: a library that negotiates in
// another way must not make kubectl slow unnoticed.
func TestAsListRequest(t *testing.T) {
	tests := map[string]struct {
		verb, accept, query string
		want                string
	}{
		"kubectl":             {verb: "list", accept: kubectlTable, want: "application/json;sv=v1," + kubectlTable},
		"pretty":              {verb: "list", accept: tableV1 + ";pretty=1", want: "application/json;sv=v1;pretty=1," + tableV1 + ";pretty=1"},
		"include":             {verb: "list", accept: tableV1, query: "?includeObject=None", want: "application/json;sv=v1," + tableV1},
		"include what is not": {verb: "list", accept: tableV1, query: "?includeObject=Everything"},
		"watch":               {verb: "watch", accept: kubectlTable},
		"get":                 {verb: "get", accept: kubectlTable},
		"JSON":                {verb: "list", accept: "application/json"},
		"YAML":                {verb: "list", accept: "application/yaml;as=Table;v=v1;g=meta.k8s.io"},
		"metadata":            {verb: "list", accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
		"nothing":             {verb: "list", accept: "text/html"},
		"no header":           {verb: "list"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/metrics.k8s.io/v1/pods"+test.query, nil)
			r.Header.Set("Accept", test.accept)
			r = r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{Verb: test.verb}))
			got := ""
			if changed := asListRequest(r); changed != nil {
				got = changed.Header.Get("Accept")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Accept (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.accept, r.Header.Get("Accept")); diff != "" {
				t.Errorf("original request (-want +got):\n%s", diff)
			}
		})
	}
	if asListRequest(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz", nil)) != nil {
		t.Error("changes a request that no handler has seen")
	}
}
