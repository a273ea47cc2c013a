// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics/policy"
)

// events reads n events as TYPE and what tells their objects apart.
func events(t *testing.T, lines *bufio.Reader, n int) []string {
	t.Helper()
	var all []string
	for range n {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatalf("read: %v", err)
			}
			return append(all, "closed")
		}
		var event struct {
			Type   string
			Object struct {
				Kind, Value  string
				Code         int
				Message      string
				MetricLabels map[string]string
				Metadata     metav1.ListMeta
			}
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("decode %s: %v", line, err)
		}
		text := event.Type + " " + event.Object.Kind
		switch event.Type {
		case "ADDED":
			text += " " + event.Object.MetricLabels["queue"] + " " + event.Object.Value
		case "BOOKMARK":
			if event.Object.Metadata.ResourceVersion == "" {
				t.Errorf("a bookmark without a resourceVersion: %s", line)
			}
		case "ERROR":
			text += " " + event.Object.Message
		}
		all = append(all, text)
	}
	return all
}

func (w *world) watch(path string, headers ...string) *bufio.Reader {
	w.t.Helper()
	response := w.do(http.MethodGet, path, headers...) //nolint:bodyclose // do has it closed at the end.
	if response.StatusCode != http.StatusOK {
		_, body := w.read(response)
		w.t.Fatalf("GET %s: %d %s", path, response.StatusCode, body)
	}
	return bufio.NewReader(response.Body)
}

func TestWatch(t *testing.T) { synctest.Test(t, watchToItsEnd) }

func watchToItsEnd(t *testing.T) {
	w := newWorld(t)
	got := events(t, w.watch(path("queue_length", "?watch=true&labelSelector=region%3Deu&allowWatchBookmarks=true&timeoutSeconds=5")), 4)
	want := []string{"ADDED ExternalMetricValue a 3500m", "ADDED ExternalMetricValue b 7", "BOOKMARK ExternalMetricValueList", "closed"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if code, body := w.get(path("missing", "?watch=true")); code != http.StatusNotFound {
		t.Errorf("a metric that does not exist: %d %s", code, body)
	}
}

func denying(name, metric string, users ...string) v1alpha1.ExternalMetricsPolicy {
	p := v1alpha1.ExternalMetricsPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Rules = []v1alpha1.ExternalMetricsPolicyRule{{Metric: metric, Deny: true}}
	for _, user := range users {
		p.Spec.Subjects = append(p.Spec.Subjects, v1alpha1.PolicySubject{Kind: "User", Name: user})
	}
	return p
}

// TestPolicies: lists and watches are refused alike, by the policy's name.
func TestPolicies(t *testing.T) {
	w := newWorld(t)
	w.add("orders", sample(1, nil))
	onlyEU := v1alpha1.ExternalMetricsPolicy{ObjectMeta: metav1.ObjectMeta{Name: "eu"}}
	onlyEU.Spec.Rules = []v1alpha1.ExternalMetricsPolicyRule{{Metric: "queue_.*", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}}
	w.apply(policy.Compile([]v1alpha1.ExternalMetricsPolicy{denying("no-orders", "orders", "jane"), onlyEU}))
	tests := map[string]struct {
		user, path string
		code       int
		says       string
	}{
		"denied":                 {"jane", path("orders", ""), http.StatusForbidden, `ExternalMetricsPolicy \"no-orders\" (spec.rules[0]) denies the metric`},
		"another user":           {"joe", path("orders", ""), http.StatusOK, `"1"`},
		"a subset":               {"jane", path("queue_length", "?labelSelector=region%3Deu,queue%3Da"), http.StatusOK, "3500m"},
		"no subset":              {"jane", path("queue_length", "?labelSelector=queue%3Da"), http.StatusForbidden, `ExternalMetricsPolicy \"eu\" (spec.rules[0]) allows only queries that select a subset of \"region=eu\"`},
		"explained":              {"jane", path("orders", "?explain=true"), http.StatusForbidden, "no-orders"},
		"a metric that is not":   {"jane", path("queue_missing", ""), http.StatusForbidden, "eu"},
		"an administrator's too": {"admin", path("queue_length", ""), http.StatusForbidden, "eu"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			code, body := w.get(tc.path, "X-Test-User", tc.user)
			if code != tc.code || !strings.Contains(body, tc.says) {
				t.Errorf("list: %d %s; want %d, mentioning %q", code, body, tc.code, tc.says)
			}
			if code == http.StatusOK || strings.Contains(tc.path, "explain") {
				return
			}
			watched := tc.path + "?watch=true"
			if strings.Contains(tc.path, "?") {
				watched = tc.path + "&watch=true"
			}
			if code, body := w.get(watched, "X-Test-User", tc.user); code != tc.code || !strings.Contains(body, tc.says) {
				t.Errorf("watch: %d %s; want %d, mentioning %q", code, body, tc.code, tc.says)
			}
		})
	}
}

// TestPoliciesSeeTheMetric: policies decide about the metric that is read, in whatever case the client
// asks for it, and their answer does not tell whether it exists.
func TestPoliciesSeeTheMetric(t *testing.T) {
	rules := func(all ...v1alpha1.ExternalMetricsPolicyRule) v1alpha1.ExternalMetricsPolicySpec {
		return v1alpha1.ExternalMetricsPolicySpec{Rules: all}
	}
	only := func(metric string) v1alpha1.ExternalMetricsPolicySpec {
		return rules(v1alpha1.ExternalMetricsPolicyRule{Metric: metric, Selector: &metav1.LabelSelector{}}, v1alpha1.ExternalMetricsPolicyRule{Metric: ".*", Deny: true})
	}
	deny := func(metric string) v1alpha1.ExternalMetricsPolicySpec { return denying("", metric).Spec }
	tests := map[string]struct {
		metrics []string
		spec    v1alpha1.ExternalMetricsPolicySpec
		asked   []string
		code    int
	}{
		"denial":                       {[]string{"QueueDepth"}, deny("QueueDepth"), []string{"queuedepth", "QueueDepth", "QUEUEDEPTH"}, http.StatusForbidden},
		"denial in lower case":         {[]string{"QueueDepth"}, deny("queuedepth"), []string{"queuedepth", "QueueDepth", "QUEUEDEPTH"}, http.StatusForbidden},
		"denial in upper case":         {[]string{"queuedepth"}, deny("QueueDepth"), []string{"queuedepth", "QueueDepth"}, http.StatusForbidden},
		"denial of one of two":         {[]string{"QueueDepth", "QUEUEDEPTH"}, deny("QueueDepth"), []string{"queuedepth"}, http.StatusForbidden},
		"denial of what there is not":  {nil, deny("QueueDepth"), []string{"queuedepth", "QueueDepth", "QUEUEDEPTH"}, http.StatusForbidden},
		"denial of another":            {[]string{"QueueDepth"}, deny("QueueDepths"), []string{"queuedepth"}, http.StatusOK},
		"allowed":                      {[]string{"QueueDepth"}, only("QueueDepth"), []string{"queuedepth", "QueueDepth", "QUEUEDEPTH"}, http.StatusOK},
		"another is allowed":           {[]string{"QueueDepth"}, only("queuedepth"), []string{"queuedepth", "QueueDepth"}, http.StatusForbidden},
		"none is allowed":              {nil, only("QueueDepth"), []string{"queuedepth", "QUEUEDEPTH"}, http.StatusForbidden},
		"all":                          {[]string{"QueueDepth"}, only(".*"), []string{"queuedepth"}, http.StatusOK},
		"two, and no policy":           {[]string{"QueueDepth", "QUEUEDEPTH"}, deny("orders"), []string{"queuedepth"}, http.StatusNotFound},
		"selector in the other case":   {[]string{"QueueDepth"}, rules(v1alpha1.ExternalMetricsPolicyRule{Metric: "queuedepth", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}), []string{"queuedepth", "QueueDepth"}, http.StatusForbidden},
		"whatever the case of letters": {[]string{"QueueDepth"}, deny("[a-z]+"), []string{"queuedepth"}, http.StatusForbidden},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, metric := range tc.metrics {
				w.add(metric, sample(25, nil))
			}
			w.apply(policy.Compile([]v1alpha1.ExternalMetricsPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: tc.spec}}))
			for _, asked := range tc.asked {
				code, body := w.get(path(asked, ""))
				if code != tc.code || code == http.StatusOK && !strings.Contains(body, `"metricName":"QueueDepth"`) ||
					code == http.StatusForbidden && !strings.Contains(body, `queuedepth.external.metrics.k8s.io is forbidden`) {
					t.Errorf("list of %s: %d %s, want %d", asked, code, body, tc.code)
				}
				if code, _ := w.get(path(asked, "?explain=true")); code != tc.code {
					t.Errorf("explanation of %s: %d, want %d", asked, code, tc.code)
				}
				if code == http.StatusOK {
					w.watch(path(asked, "?watch=true&timeoutSeconds=1"))
				} else if code, _ := w.get(path(asked, "?watch=true&timeoutSeconds=1")); code != tc.code {
					t.Errorf("watch of %s: %d, want %d", asked, code, tc.code)
				}
			}
		})
	}
}

// TestAllNamespaces: a request for all namespaces is under the policies of each.
func TestAllNamespaces(t *testing.T) {
	everywhere := func(query string) string { return strings.Replace(path("queue_length", query), "/shop/", "/*/", 1) }
	ofBank := denying("bank", "queue_.*", "jane")
	ofBank.Spec.Namespaces = []string{"bank"}
	w := newWorld(t)
	w.apply(policy.Compile([]v1alpha1.ExternalMetricsPolicy{ofBank}))
	for _, query := range []string{"", "?explain=true", "?watch=true&timeoutSeconds=1"} {
		if code, body := w.get(everywhere(query), "X-Test-User", "jane"); code != http.StatusForbidden || !strings.Contains(body, `ExternalMetricsPolicy \"bank\"`) {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
	if code, body := w.get(path("queue_length", ""), "X-Test-User", "jane"); code != http.StatusOK {
		t.Errorf("in another namespace: %d %s", code, body)
	}
	if code, body := w.get(everywhere("?labelSelector=queue%3Da"), "X-Test-User", "joe"); code != http.StatusOK || !strings.Contains(body, "3500m") {
		t.Errorf("another user: %d %s", code, body)
	}
	if got := events(t, w.watch(everywhere("?watch=true&labelSelector=queue%3Da"), "X-Test-User", "joe"), 1); got[0] != "ADDED ExternalMetricValue a 3500m" {
		t.Errorf("watch: %q", got)
	}
}

// TestWatchKeepsItsMetric: a watch stays with the metric that it began with, so that policies decide
// about what it reads.
func TestWatchKeepsItsMetric(t *testing.T) { synctest.Test(t, watchKeepsItsMetric) }

func watchKeepsItsMetric(t *testing.T) {
	w := newWorld(t)
	w.add("Depth", sample(1, nil))
	lines := w.watch(path("depth", "?watch=true"))
	events(t, lines, 1)
	synctest.Wait()
	w.add("depth", sample(2, nil))
	w.apply(policy.Compile([]v1alpha1.ExternalMetricsPolicy{denying("only-upper", "(?-i)Depth")}))
	if got := events(t, lines, 2); !strings.HasPrefix(got[0], "ERROR Status depth.external.metrics.k8s.io is forbidden") || got[1] != "closed" {
		t.Errorf("%q", got)
	}
	if code, body := w.get(path("depth", "")); code != http.StatusOK || !strings.Contains(body, `"metricName":"depth","metricLabels":{}`) {
		t.Errorf("the other metric: %d %s", code, body)
	}
}

// TestPoliciesEndWatches: a change ends the watches that it denies, and no others.
func TestPoliciesEndWatches(t *testing.T) { synctest.Test(t, endWatchesByPolicies) }

func endWatchesByPolicies(t *testing.T) {
	w := newWorld(t)
	w.add("orders", sample(1, nil))
	jane := w.watch(path("orders", "?watch=true"), "X-Test-User", "jane")
	joe := w.watch(path("orders", "?watch=true&timeoutSeconds=5&allowWatchBookmarks=true"), "X-Test-User", "joe")
	for _, lines := range []*bufio.Reader{jane, joe} {
		events(t, lines, 1)
	}
	w.apply(policy.Compile([]v1alpha1.ExternalMetricsPolicy{denying("no-orders", "orders", "jane")}))
	got := events(t, jane, 2)
	if len(got) != 2 || !strings.HasPrefix(got[0], "ERROR Status orders.external.metrics.k8s.io is forbidden: ExternalMetricsPolicy") || got[1] != "closed" {
		t.Errorf("jane: %q", got)
	}
	if got := events(t, joe, 2); got[0] != "BOOKMARK ExternalMetricValueList" || got[1] != "closed" {
		t.Errorf("joe: %q", got)
	}
	w.policies.mu.Lock()
	defer w.policies.mu.Unlock()
	for g := range w.policies.watches {
		t.Errorf("still restricted: %+v", g.query)
	}
}

// TestPoliciesUnknown: before it is known what may be read, nothing is.
func TestPoliciesUnknown(t *testing.T) {
	w := newWorld(t)
	w.policies.Apply(nil)
	for _, query := range []string{"", "?watch=true"} {
		response := w.do(http.MethodGet, path("queue_length", query)) //nolint:bodyclose // do has it closed at the end.
		if code, body := w.read(response); code != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
			t.Errorf("%d %v %s", code, response.Header, body)
		}
	}
}
