// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// TestEveryPath asks at each path of the proposal, in both versions.
func TestEveryPath(t *testing.T) {
	server := serve(t, newWorld())
	tests := map[string]struct {
		path string
		// want are objects as APIVERSION KIND NAMESPACE/NAME = VALUE.
		want []string
	}{
		"a pod":                     {"/namespaces/shop/pods/web-1/hits", []string{"v1 Pod shop/web-1 = 500m"}},
		"all pods":                  {"/namespaces/shop/pods/*/hits", []string{"v1 Pod shop/db-1 = 7", "v1 Pod shop/web-1 = 500m", "v1 Pod shop/web-2 = 1500"}},
		"pods by label":             {"/namespaces/shop/pods/*/hits?labelSelector=app%3Dweb", []string{"v1 Pod shop/web-1 = 500m", "v1 Pod shop/web-2 = 1500"}},
		"pods by labels of a set":   {"/namespaces/shop/pods/*/hits?labelSelector=app+in+(db),!x", []string{"v1 Pod shop/db-1 = 7"}},
		"empty selectors":           {"/namespaces/shop/pods/web-1/hits?labelSelector=&metricLabelSelector=", []string{"v1 Pod shop/web-1 = 500m"}},
		"no pod is selected":        {"/namespaces/shop/pods/*/hits?labelSelector=app%3Dnone", nil},
		"a namespace without pods":  {"/namespaces/empty/pods/*/hits", nil},
		"dots and colons in a name": {"/namespaces/shop/pods/*/http.requests:rate5m", []string{"v1 Pod shop/web-1 = 3"}},
		"a resource of a group":     {"/namespaces/shop/ingresses.networking.k8s.io/front/hits", []string{"networking.k8s.io/v1 Ingress shop/front = 10"}},
		"a group's former name":     {"/namespaces/shop/ingresses.extensions/*/hits?labelSelector=app%3Dweb", []string{"networking.k8s.io/v1 Ingress shop/front = 10"}},
		"an object of no namespace": {"/nodes/node-a/load", []string{"v1 Node /node-a = 2"}},
		"all of these":              {"/nodes/*/load", []string{"v1 Node /node-a = 2"}},
		"these by label":            {"/nodes/*/load?labelSelector=zone%3Dy", nil},
		"a namespace":               {"/namespaces/shop/metrics/queue-length", []string{"v1 Namespace /shop = 42"}},
		"all namespaces":            {"/namespaces/*/metrics/queue-length", []string{"v1 Namespace /bank = 43", "v1 Namespace /shop = 42"}},
		"namespaces by label":       {"/namespaces/*/metrics/queue-length?labelSelector=team%3Da", []string{"v1 Namespace /shop = 42"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, version := range []string{"v1beta1", "v1beta2"} {
				got := server.do(t, http.MethodGet, root(version)+tc.path, "")
				if got.code != http.StatusOK {
					t.Fatalf("%s: %d %s", version, got.code, got.body)
				}
				// What is looked at has the same names in both versions.
				var list v1beta2.MetricValueList
				if err := json.Unmarshal(got.body, &list); err != nil {
					t.Fatal(err)
				}
				var objects []string
				for _, v := range list.Items {
					o := v.DescribedObject
					objects = append(objects, o.APIVersion+" "+o.Kind+" "+o.Namespace+"/"+o.Name+" = "+v.Value.String())
				}
				if diff := cmp.Diff(tc.want, objects); diff != "" {
					t.Errorf("%s (-want +got):\n%s", version, diff)
				}
				if list.ResourceVersion == "" || list.ResourceVersion == "0" {
					t.Errorf("%s: resourceVersion %q", version, list.ResourceVersion)
				}
				if list.APIVersion != "custom.metrics.k8s.io/"+version || list.Kind != "MetricValueList" {
					t.Errorf("%s: it is a %s %s", version, list.APIVersion, list.Kind)
				}
				if !strings.Contains(string(got.body), `"items":[`) {
					t.Errorf("%s: items are not a list: %s", version, got.body)
				}
			}
		})
	}
}

// TestWire has every field of both versions on the wire.
func TestWire(t *testing.T) {
	const path = "/namespaces/shop/pods/web-2/hits?metricLabelSelector=code%3D200"
	w := newWorld()
	w.mu.Lock()
	w.samples["pods/hits{code=200}"] = w.samples["pods/hits"]
	w.mu.Unlock()
	server := serve(t, w)
	const common = `"describedObject":{"kind":"Pod","namespace":"shop","name":"web-2","apiVersion":"v1"},`
	for version, want := range map[string]string{
		"v1beta2": `{` + common + `"metric":{"name":"hits","selector":{"matchLabels":{"code":"200"}}},"timestamp":"2026-08-30T12:00:01Z","windowSeconds":120,"value":"1500"}`,
		"v1beta1": `{` + common + `"metricName":"hits","timestamp":"2026-08-30T12:00:01Z","window":120,"value":"1500","selector":{"matchLabels":{"code":"200"}}}`,
	} {
		got := server.do(t, http.MethodGet, root(version)+path, "")
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(got.body, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 {
			t.Fatalf("%s: %d items: %s", version, len(list.Items), got.body)
		}
		if diff := cmp.Diff(want, string(list.Items[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

// TestRefusals asks for what there is not, at every kind of path.
func TestRefusals(t *testing.T) {
	failing := newWorld()
	failing.fail(&query.Failure{Source: "main", Reason: query.ReasonBadStatus, Message: "502 Bad Gateway"})
	w := newWorld()
	w.metric("forbidden", podKind, true, "hits")
	w.sample("pods/hits", "nan-1", math.NaN(), 0)
	w.object("pods", "shop", "nan-1", "app=nan")
	w.metric("pods", podKind, true, "nothing")
	w.metric("pods", podKind, true, "unlabeled")
	w.sample("pods/unlabeled", "", 0, 0)
	server, down := serve(t, w), serve(t, failing)
	tests := map[string]struct {
		server *served
		method string
		path   string
		code   int
		reason metav1.StatusReason
		says   string
	}{
		"no such metric":               {path: "/namespaces/shop/pods/*/misses", code: 404, reason: metav1.StatusReasonNotFound, says: "misses"},
		"no such metric of an object":  {path: "/namespaces/shop/pods/web-1/misses", code: 404, reason: metav1.StatusReasonNotFound},
		"no value of an object":        {path: "/namespaces/shop/pods/other/hits", code: 404, reason: metav1.StatusReasonNotFound, says: `metric "hits" of pods "other" in namespace "shop" has no value: the source answers 5 series, but none of an object that was asked for`},
		"no series":                    {path: "/namespaces/shop/pods/web-1/nothing", code: 404, reason: metav1.StatusReasonNotFound, says: `has no value: the source answers no series to the query`},
		"no series of all pods":        {path: "/namespaces/shop/pods/*/nothing", code: 200, says: ""},
		"no series with the label":     {path: "/namespaces/shop/pods/web-1/unlabeled", code: 404, reason: metav1.StatusReasonNotFound, says: `has no value: the source answers 1 series, but none with the label "object", which names the object: group by it in the query (by (<<.GroupBy>>))`},
		"the same of all pods":         {path: "/namespaces/shop/pods/*/unlabeled", code: 404, reason: metav1.StatusReasonNotFound, says: `metric "unlabeled" of pods "*" in namespace "shop" has no value: the source answers 1 series, but none with the label "object"`},
		"the same of no pods":          {path: "/namespaces/empty/pods/*/unlabeled", code: 200},
		"not a number":                 {path: "/namespaces/shop/pods/nan-1/hits", code: 404, reason: metav1.StatusReasonNotFound, says: "has no value: NaN"},
		"labelSelector":                {path: "/namespaces/shop/pods/*/hits?labelSelector=%3D%3D", code: 400, reason: metav1.StatusReasonBadRequest},
		"metricLabelSelector":          {path: "/namespaces/shop/pods/*/hits?metricLabelSelector=a%3D%3Db%3Dc", code: 400, reason: metav1.StatusReasonBadRequest, says: "metricLabelSelector"},
		"a long metricLabelSelector":   {path: "/namespaces/shop/pods/*/hits?metricLabelSelector=a%3D%3D" + strings.Repeat("b", valueapi.MaxParameter), code: 400, reason: metav1.StatusReasonBadRequest, says: "at most 4096"},
		"labelSelector with a name":    {path: "/namespaces/shop/pods/web-1/hits?labelSelector=app%3Dweb", code: 400, reason: metav1.StatusReasonBadRequest, says: "name *"},
		"fieldSelector":                {path: "/namespaces/shop/pods/*/hits?fieldSelector=metadata.name%3Dx", code: 400, reason: metav1.StatusReasonBadRequest, says: "fieldSelector"},
		"continue":                     {path: "/namespaces/shop/pods/*/hits?continue=abc", code: 400, reason: metav1.StatusReasonBadRequest, says: "one page"},
		"pods of all namespaces":       {path: "/namespaces/*/pods/*/hits", code: 400, reason: metav1.StatusReasonBadRequest, says: "one namespace at a time"},
		"a percent sign":               {path: "/namespaces/shop/pods/*/hi%25ts", code: 400, reason: metav1.StatusReasonBadRequest, says: "may not contain '%'"},
		"a question mark":              {path: "/namespaces/shop/pods/*/hi%3Fts", code: 400, reason: metav1.StatusReasonBadRequest, says: "may not contain '?'"},
		"dot dot":                      {path: "/namespaces/shop/pods/web-1/%2E%2E", code: 400, reason: metav1.StatusReasonBadRequest, says: "may not be '..'"},
		"an escaped slash":             {path: "/namespaces/shop/pods/*/a%2Fb", code: 404},
		"an empty segment":             {path: "/namespaces/shop/pods//hits", code: 404},
		"a branch":                     {path: "/namespaces/shop/pods", code: 404, reason: metav1.StatusReasonNotFound, says: "nothing is at"},
		"a branch of one object":       {path: "/namespaces/shop/pods/web-1", code: 404},
		"all metrics of a namespace":   {path: "/namespaces/shop/metrics", code: 404},
		"a subresource of namespaces":  {path: "/namespaces/shop/status", code: 404, reason: metav1.StatusReasonNotFound},
		"a resource of its own":        {path: "/namespaces/shop", code: 404},
		"objects that we may not list": {path: "/namespaces/shop/forbidden/*/hits", code: 403, reason: metav1.StatusReasonForbidden, says: "no right to list"},
		"POST":                         {method: http.MethodPost, path: "/namespaces/shop/pods/*/hits", code: 405},
		"PUT":                          {method: http.MethodPut, path: "/nodes/node-a/load", code: 405},
		"PATCH":                        {method: http.MethodPatch, path: "/namespaces/shop/metrics/queue-length", code: 405},
		"DELETE":                       {method: http.MethodDelete, path: "/namespaces/shop/pods/*/hits", code: 405},
		"HEAD":                         {method: http.MethodHead, path: "/namespaces/shop/pods/*/hits", code: 405},
		"a source that is down": {
			server: down, path: "/namespaces/shop/pods/*/hits", code: 503, reason: metav1.StatusReasonServiceUnavailable,
			says: `metric "hits" of pods (spec.customMetrics.rules[0]): source "main": BadStatus: 502 Bad Gateway`,
		},
		"a named object of a source that is down": {server: down, path: "/namespaces/shop/metrics/queue-length", code: 503, reason: metav1.StatusReasonServiceUnavailable},
		"a watch of a source that is down":        {server: down, path: "/watch/namespaces/shop/pods/*/hits", code: 503, reason: metav1.StatusReasonServiceUnavailable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			at, method := tc.server, tc.method
			if at == nil {
				at = server
			}
			if method == "" {
				method = http.MethodGet
			}
			for _, version := range []string{"v1beta1", "v1beta2"} {
				got := at.do(t, method, root(version)+tc.path, "")
				if got.code != tc.code {
					t.Fatalf("%s: %d, want %d: %s", version, got.code, tc.code, got.body)
				}
				if method == http.MethodHead {
					continue
				}
				var status metav1.Status
				if err := json.Unmarshal(got.body, &status); err != nil {
					t.Fatalf("%s: not a Status: %s", version, got.body)
				}
				if tc.reason != "" && status.Reason != tc.reason {
					t.Errorf("%s: reason %q, want %q", version, status.Reason, tc.reason)
				}
				if !strings.Contains(status.Message, tc.says) {
					t.Errorf("%s: message %q, want one with %q", version, status.Message, tc.says)
				}
			}
		})
	}
}

// TestNoLastValue: while a source fails, an object that its last answer lacks is no object without series.
func TestNoLastValue(t *testing.T) {
	r := &targetRequest{target: target{resource: schema.GroupResource{Resource: "pods"}, name: "web-1", metric: "hits"}}
	failed := &query.EvaluationError{Failure: &query.Failure{Source: "main", Reason: query.ReasonTimeout, Message: "no answer within 10s"}}
	err := r.noValue(&query.MetricQuery{Origin: "CustomMetric shop/hits"}, nil, &query.Values{SourceError: failed})
	if want := `metric "hits" of pods "web-1" (CustomMetric shop/hits) has no last value: source "main": Timeout: no answer within 10s`; err.Error() != want || !errors.Is(err, failed) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestCombinedValues: an object of which one series has no value has none, unless the rest is to be served,
// and other objects have theirs.
func TestCombinedValues(t *testing.T) {
	infinite := []query.Sample{
		{Labels: map[string]string{"object": "web-1", "code": "200"}, Value: 5, Time: t0},
		{Labels: map[string]string{"object": "web-1", "code": "500"}, Value: math.Inf(1), Time: t0},
		{Labels: map[string]string{"object": "web-2"}, Value: 3, Time: t0},
	}
	const (
		all, one = "/namespaces/shop/pods/*/hits", "/namespaces/shop/pods/web-1/hits"
		why      = `: Infinite: of its series {code="500",object="web-1"} the value is infinite`
	)
	for name, test := range map[string]struct {
		omit bool
		path string
		code int
		// want are the values, or the error.
		want, warning string
	}{
		"all":           {false, all, 200, "web-2=3", `metric "hits" of pods "web-1" has no value` + why},
		"one":           {false, one, 404, `metric "hits" of pods "web-1" in namespace "shop" has no value` + why, ""},
		"all, the rest": {true, all, 200, "web-1=5 web-2=3", ""},
		"one, the rest": {true, one, 200, "web-1=5", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.samples["pods/hits"], w.duplicates, w.omitInvalid = infinite, v1alpha1.DuplicatesMinimum, test.omit
			got := serve(t, w).do(t, http.MethodGet, root("v1beta2")+test.path, "")
			var body struct {
				Message string
				Items   []v1beta2.MetricValue
			}
			if err := json.Unmarshal(got.body, &body); err != nil {
				t.Fatal(err)
			}
			var values []string
			for i := range body.Items {
				values = append(values, body.Items[i].DescribedObject.Name+"="+body.Items[i].Value.String())
			}
			var warning string
			if all, _ := net.ParseWarningHeaders(got.header.Values("Warning")); len(all) > 0 {
				warning = all[0].Text
			}
			if text := body.Message + strings.Join(values, " "); got.code != test.code || text != test.want || warning != test.warning {
				t.Errorf("%d %s, warning %s", got.code, text, warning)
			}
		})
	}
}

// TestSelected: one object that a selector selects is not one that is named.
func TestSelected(t *testing.T) {
	w := newWorld()
	server := serve(t, w)
	for path, selected := range map[string]bool{"/namespaces/shop/pods/web-1/hits": false, "/namespaces/shop/pods/*/hits?labelSelector=app%3Ddb": true} {
		if got := server.do(t, http.MethodGet, root("v1beta2")+path, ""); got.code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, got.code, got.body)
		}
		w.mu.Lock()
		if len(w.read.Names) != 1 || w.read.Selected != selected {
			t.Errorf("%s reads %q, selected %t", path, w.read.Names, w.read.Selected)
		}
		w.mu.Unlock()
	}
}
