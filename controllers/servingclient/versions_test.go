// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Discovery goes on listing a version whose requests fail: only a request tells.
func TestAskTriesARequest(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	body := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	const path = "/apis/metrics.k8s.io/v1/nodes"
	cases := map[string]struct {
		nodes   http.HandlerFunc
		serves  bool
		failing string
		err     string
	}{
		"a list": {nodes: body(`{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1","items":[]}`), serves: true},
		"a list in another order, longer than is read": {
			nodes: body(`{"metadata":{"a":[1,{"kind":"x"}]},"apiVersion":"metrics.k8s.io/v1","kind":"NodeMetricsList","items":["` +
				strings.Repeat("x", maxBody) + `"]}`),
			serves: true,
		},
		"no handler":         {nodes: status(http.StatusNotFound)},
		"an internal error":  {nodes: status(http.StatusInternalServerError), serves: true, failing: "ask " + path + ": answered 500 Internal Server Error"},
		"not available":      {nodes: status(http.StatusServiceUnavailable), serves: true, failing: "ask " + path + ": answered 503 Service Unavailable"},
		"an empty answer":    {nodes: status(http.StatusOK), serves: true, failing: "read the answer to " + path + ": EOF"},
		"no JSON":            {nodes: body("<html>"), serves: true, failing: "read the answer to " + path + ": invalid character '<' looking for beginning of value"},
		"no object":          {nodes: body("[]"), serves: true, failing: "read the answer to " + path + ": it is no JSON object"},
		"an anonymous list":  {nodes: body(`{"items":[]}`), serves: true, failing: "read the answer to " + path + ": not kind and apiVersion in it"},
		"half a list":        {nodes: body(`{"kind":"NodeMetricsList","meta`), serves: true, failing: "read the answer to " + path + ": unexpected EOF"},
		"kind is no text":    {nodes: body(`{"kind":{}}`), serves: true, failing: "read the answer to " + path + ": json: cannot unmarshal object into Go value of type string"},
		"of another version": {nodes: body(`{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1"}`), serves: true, failing: "read the answer to " + path + `: it is "NodeMetricsList" of "metrics.k8s.io/v1beta1", not NodeMetricsList of metrics.k8s.io/v1`},
		// These tell of the operator or of the moment, not of the version.
		"not allowed":    {nodes: status(http.StatusForbidden), err: "answered 403 Forbidden"},
		"not known":      {nodes: status(http.StatusUnauthorized), err: "answered 401"},
		"too busy":       {nodes: status(http.StatusTooManyRequests), err: "answered 429"},
		"sent elsewhere": {nodes: status(http.StatusFound), err: "answered 302"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("/apis/metrics.k8s.io/v1", body(resources("v1", `{"name":"nodes"}`)))
			mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery != "limit=1" || !strings.HasPrefix(r.UserAgent(), v1alpha1.OperatorUserAgent+"/") {
					t.Errorf("asked with %q by %q", r.URL.RawQuery, r.UserAgent())
				}
				tc.nodes(w, r)
			})
			mux.HandleFunc(v1alpha1.SourcesPath, body("{}"))
			got, err := NewClient(nil).Probe(t.Context(), server(t, mux), []schema.GroupVersion{v1})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q in it", err, tc.err)
				}
				// What discovery told is known all the same, and nothing is proven.
				if !got.Serves[v1] || !strings.Contains(got.Failing[v1], tc.err) {
					t.Errorf("got %+v", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := &Answer{Serves: map[schema.GroupVersion]bool{v1: tc.serves}, Sources: &v1alpha1.SourceReport{}}
			if tc.failing != "" {
				want.Failing = map[schema.GroupVersion]string{v1: tc.failing}
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Answer{}, "Chain", "ConsumersError")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A version whose requests hang is one that fails, not a pod that cannot be asked.
func TestTimeoutOfARequestIsAFailure(t *testing.T) {
	if !isServerError(stableError(&timeout{})) {
		t.Error("a timeout is no failure")
	}
}

type timeout struct{}

func (*timeout) Error() string   { return "i/o timeout" }
func (*timeout) Timeout() bool   { return true }
func (*timeout) Temporary() bool { return true }

func FuzzCheckList(f *testing.F) {
	for _, seed := range []string{`{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1"}`, `{"a":[],"kind":1}`, `[`, `{"kind"`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		err := checkList(strings.NewReader(body), v1, "NodeMetricsList")
		if err == nil && !strings.Contains(body, "{") {
			t.Errorf("took %q for a list", body)
		}
	})
}

// Which metrics exist is the sources' affair: a version is served that has none, and one
// whose discovery fails is not mistaken for one that is not there, nor for the pod.
func TestAskForDiscoveryOfMetrics(t *testing.T) {
	custom := schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}
	const path = "/apis/custom.metrics.k8s.io/v1beta2"
	answer := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, text)
		}
	}
	cases := map[string]struct {
		discovery http.HandlerFunc
		foreign   bool
		serves    bool
		failing   string
		err       string
	}{
		"no metrics": {discovery: answer(http.StatusOK, `{"kind":"APIResourceList","groupVersion":"custom.metrics.k8s.io/v1beta2","resources":[]}`), serves: true},
		"more metrics than are read": {
			discovery: answer(http.StatusOK, `{"groupVersion":"custom.metrics.k8s.io/v1beta2","resources":["`+strings.Repeat("x", maxBody)+`"]}`), serves: true,
		},
		"another version":      {discovery: answer(http.StatusOK, `{"groupVersion":"custom.metrics.k8s.io/v1beta1"}`)},
		"not there":            {discovery: answer(http.StatusNotFound, "")},
		"no discovery":         {discovery: answer(http.StatusOK, `{}`), serves: true, failing: "read the answer to " + path + ": not groupVersion in it"},
		"not available":        {discovery: answer(http.StatusServiceUnavailable, ""), serves: true, failing: "ask " + path + ": answered 503 Service Unavailable"},
		"not allowed":          {discovery: answer(http.StatusForbidden, ""), err: "answered 403 Forbidden"},
		"not available, other": {foreign: true, discovery: answer(http.StatusServiceUnavailable, ""), err: "answered 503"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc(path, tc.discovery)
			mux.Handle(v1alpha1.SourcesPath, paths(map[string]string{v1alpha1.SourcesPath: "{}"}))
			pod := server(t, mux)
			pod.DiscoveryOnly = tc.foreign
			got, err := NewClient(nil).Probe(t.Context(), pod, []schema.GroupVersion{custom})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Serves[custom] != tc.serves || got.Failing[custom] != tc.failing {
				t.Errorf("serves %t, failing %q, want %t, %q", got.Serves[custom], got.Failing[custom], tc.serves, tc.failing)
			}
		})
	}
}
