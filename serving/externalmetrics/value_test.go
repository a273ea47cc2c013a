// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/net"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// warnings are the texts of an answer's Warning headers.
func warnings(t *testing.T, response *http.Response) []string {
	t.Helper()
	parsed, errs := net.ParseWarningHeaders(response.Header.Values("Warning"))
	for _, err := range errs {
		t.Error(err)
	}
	var texts []string
	for _, w := range parsed {
		texts = append(texts, w.Text)
	}
	return texts
}

// TestWarnings: what is left out, or stands in for a value, is told of.
func TestWarnings(t *testing.T) {
	w := newWorld(t)
	w.add("rest_fits", sample(math.NaN(), labels.Set{"queue": "a"}), sample(1, labels.Set{"queue": "b"}))
	tests := map[string]struct {
		path string
		want []string
	}{
		"all fit":  {path("queue_length", ""), nil},
		"some fit": {path("rest_fits", ""), []string{`the series {queue=a} of external metric "rest_fits" has no value: NaN: the value is NaN (not a number, such as 0/0)`}},
		"selected": {path("rest_fits", "?labelSelector=queue%3Db"), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			response := w.do(http.MethodGet, tc.path) //nolint:bodyclose // do has it closed at the end.
			if diff := cmp.Diff(tc.want, warnings(t, response)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestStandIn: a fallback's value is marked as one.
func TestStandIn(t *testing.T) {
	w := newWorld(t)
	seven := 7.0
	w.fallback.Store(&query.Fallback{AfterFailures: 1, Static: &seven})
	w.fail("the disk is full")
	response := w.do(http.MethodGet, path("queue_length", "")) //nolint:bodyclose // do has it closed at the end.
	if code, body := w.read(response); code != http.StatusOK || !strings.Contains(body, `"value":"7"`) {
		t.Errorf("%d %s", code, body)
	}
	if got := warnings(t, response); len(got) != 1 || !strings.HasPrefix(got[0], "the values are stand-ins: ") || !strings.Contains(got[0], "the disk is full") {
		t.Errorf("warnings %q", got)
	}
}

// TestWatchLimit: kube-apiserver breaks watches of these names after 60 s.
func TestWatchLimit(t *testing.T) {
	for metric, want := range map[string]time.Duration{"status": 50 * time.Second, "finalize": 50 * time.Second, "queue_length": 0, "status_total": 0} {
		info, err := testResolver().NewRequestInfo(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: path(metric, ""), RawQuery: "watch=true"}})
		if err != nil {
			t.Fatal(err)
		}
		if info.Verb != "watch" {
			t.Errorf("%s: the verb is %s", metric, info.Verb)
		}
		if got := watchLimit(info); got != want {
			t.Errorf("%s: %v, want %v", metric, got, want)
		}
	}
}
