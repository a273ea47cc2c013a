// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// An explanation is of the objects that were asked for, and of no others: whoever may
// read one pod's metric by name must not learn of its neighbors'.
func TestExplain(t *testing.T) {
	w := newWorld()
	w.metric("pods", podKind, true, "unlabeled")
	w.sample("pods/unlabeled", "", 0, 0)
	failing := newWorld()
	failing.fail(&query.Failure{Source: "main", Reason: query.ReasonBadStatus, Message: "502 Bad Gateway"})
	server, down := serve(t, w), serve(t, failing)
	for name, test := range map[string]struct {
		server *served
		path   string
		want   string // objects with a value, series of theirs, series of others
		fails  string // the failure, or why nothing has a value
	}{
		"all":            {path: "/namespaces/shop/pods/*/hits?explain=true", want: "db-1 web-1 web-2, 3 series, 1 others"},
		"by a selector":  {path: "/namespaces/shop/pods/*/hits?explain=1&labelSelector=app%3Dweb", want: "web-1 web-2, 2 series, 2 others"},
		"no pod at all":  {path: "/namespaces/shop/pods/*/hits?explain=true&labelSelector=app%3Dnone", want: ", 0 series, 4 others"},
		"another's pods": {path: "/namespaces/shop/pods/*/hits?explain=true&labelSelector=app%3Ddb", want: "db-1, 1 series, 3 others"},
		"one pod":        {path: "/namespaces/shop/pods/web-1/hits?explain=true", want: "web-1, 1 series, 3 others"},
		"one without": {path: "/namespaces/shop/pods/other/hits?explain=true", want: ", 0 series, 4 others",
			fails: "NoSeries: the source answers 4 series, but none of an object that was asked for"},
		"no object at all": {path: "/namespaces/shop/pods/*/unlabeled?explain=true", want: ", 0 series, 1 others",
			fails: `NoObject: the source answers 1 series, but none with the label "object", which names the object: group by it in the query (by (<<.GroupBy>>))`},
		"a source that is down": {server: down, path: "/namespaces/shop/pods/*/hits?explain=true", want: ", 0 series, 0 others",
			fails: "BadStatus: 502 Bad Gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.server == nil {
				test.server = server
			}
			got := test.server.do(t, http.MethodGet, root("v1beta2")+test.path, "")
			var e v1alpha1.MetricExplanation
			if err := json.Unmarshal(got.body, &e); err != nil || got.code != http.StatusOK {
				t.Fatalf("%d %s: %v", got.code, got.body, err)
			}
			var objects []string
			for _, v := range e.Values {
				objects = append(objects, v.Object)
			}
			if diff := cmp.Diff(test.want, fmt.Sprintf("%s, %d series, %d others", strings.Join(objects, " "), e.SeriesCount, e.OtherSeries)); diff != "" {
				t.Errorf("%s\n%s", diff, got.body)
			}
			fails := ""
			if e.Failure != nil {
				fails = e.Failure.Reason + ": " + e.Failure.Message
			}
			for _, o := range e.Omitted {
				fails += o.Reason + ": " + o.Message
			}
			if fails != test.fails || e.Query == "" || e.Origin == "" {
				t.Errorf("failure %q, want %q\n%s", fails, test.fails, got.body)
			}
		})
	}
}

func TestExplainRefusals(t *testing.T) {
	server := serve(t, newWorld())
	for path, want := range map[string]int{
		"/namespaces/shop/pods/*/hits?explain=maybe":                    http.StatusBadRequest,
		"/namespaces/shop/pods/*/misses?explain=true":                   http.StatusNotFound,
		"/namespaces/shop/pods/*/hits?explain=true&labelSelector=%3D":   http.StatusBadRequest,
		"/namespaces/shop/pods/*/hits?explain=true&fieldSelector=a%3Db": http.StatusBadRequest,
		"/namespaces/shop/pods/*/hits?explain=true&continue=x":          http.StatusBadRequest,
	} {
		if got := server.do(t, http.MethodGet, root("v1beta1")+path, ""); got.code != want {
			t.Errorf("%s: %d, want %d: %s", path, got.code, want, got.body)
		}
	}
	// The values, where that is what is asked for.
	if got := server.do(t, http.MethodGet, root("v1beta1")+"/namespaces/shop/pods/*/hits?explain=false", ""); !strings.Contains(string(got.body), "MetricValueList") {
		t.Errorf("explain=false: %d %s", got.code, got.body)
	}
}
