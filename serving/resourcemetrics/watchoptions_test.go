// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// watchedStore holds two nodes and four pods in two namespaces.
func watchedStore() *samplestore.Store {
	store, usage := newStore(), samplestore.Usage{Name: "app", CPU: 1, Memory: 1}
	put(store.Nodes, "", "node-a", map[string]string{"zone": "a"}, sample(0, usage))
	put(store.Nodes, "", "node-b", map[string]string{"zone": "b"}, sample(0, usage))
	put(store.Pods, "blog", "db-0", map[string]string{"app": "db"}, sample(0, usage))
	put(store.Pods, "blog", "web-0", map[string]string{"app": "web"}, sample(0, usage))
	put(store.Pods, "shop", "web-0", map[string]string{"app": "web", "track": "canary"}, sample(0, usage))
	put(store.Pods, "shop", "web-1", map[string]string{"app": "web"}, sample(0, usage))
	return store
}

// manyTerms is a label selector of 1,000 terms, the last of which names an app.
func manyTerms(app string) string {
	var terms []string
	for i := range 999 {
		terms = append(terms, fmt.Sprintf("app-%03d", i))
	}
	return url.QueryEscape("app in (" + strings.Join(append(terms, app), ",") + ")")
}

// TestWatchSelection holds which objects a watch begins with, by path and options.
func TestWatchSelection(t *testing.T) {
	server := serve(t, watchedStore(), enableAll)
	at := millis(0)
	tests := map[string]struct {
		path string
		want []string
	}{
		"all nodes":               {path: "nodes?watch=true", want: []string{"node-a", "node-b"}},
		"watch=1":                 {path: "nodes?watch=1", want: []string{"node-a", "node-b"}},
		"node by name":            {path: "nodes?watch=true&fieldSelector=metadata.name%3Dnode-b", want: []string{"node-b"}},
		"all nodes but one":       {path: "nodes?watch=true&fieldSelector=metadata.name!%3Dnode-b", want: []string{"node-a"}},
		"nodes by label":          {path: "nodes?watch=true&labelSelector=zone%3Da", want: []string{"node-a"}},
		"all pods":                {path: "pods?watch=true", want: []string{"db-0", "web-0", "web-0", "web-1"}},
		"pods of a namespace":     {path: "namespaces/shop/pods?watch=true", want: []string{"web-0", "web-1"}},
		"pods by label":           {path: "pods?watch=true&labelSelector=app%3Dweb,!track", want: []string{"web-0", "web-1"}},
		"pods by name":            {path: "pods?watch=true&fieldSelector=metadata.name%3Dweb-0", want: []string{"web-0", "web-0"}},
		"pods by namespace":       {path: "pods?watch=true&fieldSelector=metadata.namespace%3Dblog", want: []string{"db-0", "web-0"}},
		"a pod of a namespace":    {path: "namespaces/shop/pods?watch=true&fieldSelector=metadata.name%3Dweb-1", want: []string{"web-1"}},
		"1,000 terms":             {path: "pods?watch=true&labelSelector=" + manyTerms("db"), want: []string{"db-0"}},
		"deprecated prefix":       {path: "watch/nodes", want: []string{"node-a", "node-b"}},
		"deprecated prefix, one":  {path: "watch/namespaces/shop/pods/web-1", want: []string{"web-1"}},
		"limit means nothing":     {path: "nodes?watch=true&limit=1", want: []string{"node-a", "node-b"}},
		"no resourceVersion":      {path: "nodes?watch=true&resourceVersion=", want: []string{"node-a", "node-b"}},
		"any resourceVersion":     {path: "nodes?watch=true&resourceVersion=0", want: []string{"node-a", "node-b"}},
		"a list's":                {path: "nodes?watch=true&resourceVersion=" + at, want: []string{"node-a", "node-b"}},
		"an old one":              {path: "nodes?watch=true&resourceVersion=1", want: []string{"node-a", "node-b"}},
		"one of the future":       {path: "nodes?watch=true&resourceVersion=99999999999999999999", want: []string{"node-a", "node-b"}},
		"no resourceVersion ever": {path: "nodes?watch=true&resourceVersion=garbage", want: []string{"node-a", "node-b"}},
		"garbage of an informer":  {path: "nodes?watch=true&resourceVersion=garbage&resourceVersionMatch=NotOlderThan&sendInitialEvents=true", want: []string{"node-a", "node-b"}},
		"no initial events": {
			path: "nodes?watch=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=false", want: []string{"node-a", "node-b"},
		},
	}
	for name, test := range tests {
		for _, version := range GroupVersions() {
			t.Run(version.Version+" "+name, func(t *testing.T) {
				kind := "NodeMetrics"
				if strings.Contains(test.path, "pods") {
					kind = "PodMetrics"
				}
				var want []string
				for _, name := range test.want {
					want = append(want, fmt.Sprintf("ADDED *%s.%s %s %s", version.Version, kind, name, at))
				}
				follow(t, server, version.Version+"/"+test.path, "application/json").expect(want...)
			})
		}
	}
}

// TestWatchErrors holds codes, reasons and texts to the stock ones.
func TestWatchErrors(t *testing.T) {
	server := serve(t, watchedStore(), enableAll)
	tests := map[string]struct {
		path, accept string
		code         int32
		reason       metav1.StatusReason
		text         string
	}{
		"no label selector": {
			path: "pods?watch=true&labelSelector=a%20b%20c",
			code: 400, reason: metav1.StatusReasonBadRequest, text: `unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt`,
		},
		"no field selector": {
			path: "pods?watch=true&fieldSelector=nonsense",
			code: 400, reason: metav1.StatusReasonBadRequest, text: `invalid selector: 'nonsense'; can't understand 'nonsense'`,
		},
		"unknown field": {
			path: "pods?watch=true&fieldSelector=spec.nodeName%3Dnode-a",
			code: 400, reason: metav1.StatusReasonBadRequest, text: `"spec.nodeName" is not a known field selector: only "metadata.name", "metadata.namespace"`,
		},
		"no timeout": {
			path: "pods?watch=true&timeoutSeconds=soon",
			code: 400, reason: metav1.StatusReasonBadRequest, text: `strconv.ParseInt: parsing "soon": invalid syntax`,
		},
		"too long a timeout": {
			path: "pods?watch=true&timeoutSeconds=99999999999999999999",
			code: 400, reason: metav1.StatusReasonBadRequest, text: `strconv.ParseInt: parsing "99999999999999999999": value out of range`,
		},
		"no allowWatchBookmarks": {
			path: "nodes?watch=true&resourceVersionMatch=NotOlderThan",
			code: 422, reason: metav1.StatusReasonInvalid,
			text: `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided`,
		},
		"initial events of an exact version": {
			path: "nodes?watch=true&resourceVersionMatch=Exact&sendInitialEvents=true&resourceVersion=1",
			code: 422, reason: metav1.StatusReasonInvalid,
			text: `ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, ` +
				`resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"]`,
		},
		"another name than the path's": {
			path: "watch/nodes/node-a?fieldSelector=metadata.name%3Dnode-b",
			code: 400, reason: metav1.StatusReasonBadRequest, text: "fieldSelector metadata.name doesn't match requested name",
		},
		"no stream": {
			path: "nodes?watch=true", accept: "application/yaml",
			code: 406, reason: "NotAcceptable",
			text: "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor;stream=watch",
		},
		"unknown resource": {
			path: "namespaces?watch=true",
			code: 404, reason: metav1.StatusReasonNotFound, text: "the server could not find the requested resource",
		},
	}
	for name, test := range tests {
		for _, version := range GroupVersions() {
			t.Run(version.Version+" "+name, func(t *testing.T) {
				a := get(t, server, "/apis/"+version.String()+"/"+test.path, test.accept)
				var status metav1.Status
				if err := yaml.Unmarshal(a.body, &status); err != nil { // which JSON is, too
					t.Fatalf("got code %d and no Status: %s", a.code, a.body)
				}
				type outcome struct {
					HTTP   int32
					Reason metav1.StatusReason
					Text   string
				}
				want := outcome{HTTP: test.code, Reason: test.reason, Text: test.text}
				if diff := cmp.Diff(want, outcome{HTTP: int32(a.code), Reason: status.Reason, Text: status.Message}); diff != "" {
					t.Errorf("error (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestWatchOfOne: a name in the path makes it a get, as everywhere.
func TestWatchOfOne(t *testing.T) {
	server := serve(t, watchedStore(), enableAll)
	a := get(t, server, "/apis/metrics.k8s.io/v1/nodes/node-a?watch=true", "")
	if diff := cmp.Diff(get(t, server, "/apis/metrics.k8s.io/v1/nodes/node-a", ""), a, cmp.AllowUnexported(answer{}),
		cmp.FilterPath(func(p cmp.Path) bool {
			return strings.Contains(p.GoString(), `"Audit-Id"`) || strings.Contains(p.GoString(), `"Date"`)
		}, cmp.Ignore())); diff != "" {
		t.Errorf("get (-) and get with watch=true (+) differ:\n%s", diff)
	}
	if a.code != http.StatusOK {
		t.Errorf("got code %d: %s", a.code, a.body)
	}
}
