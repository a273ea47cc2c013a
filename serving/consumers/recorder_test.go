// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var (
	v1       = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	v1beta1  = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	versions = []schema.GroupVersion{v1, v1beta1}
	// noon is that of the first day of the tests.
	noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
)

const (
	hpaAgent = "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes/1234567/horizontal-pod-autoscaler"
	hpaUser  = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
)

func consumer(version, userAgent, user, lastSeen string) v1alpha1.ConsumerStatus {
	return v1alpha1.ConsumerStatus{Version: version + ".metrics.k8s.io", UserAgent: userAgent, User: user, LastSeen: lastSeen}
}

func TestRecorder(t *testing.T) {
	tests := map[string]struct {
		record func(*Recorder, *testingclock.FakePassiveClock)
		want   v1alpha1.ConsumerReport
	}{
		"nobody": {
			record: func(*Recorder, *testingclock.FakePassiveClock) {},
			want:   v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{}},
		},
		"two clients, two versions, many requests": {
			record: func(r *Recorder, _ *testingclock.FakePassiveClock) {
				for range 3 {
					r.Record(v1beta1, hpaAgent, hpaUser)
					r.Record(v1, "kubectl/v1.37.0 (linux/amd64)", "jane")
				}
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{
				consumer("v1", "kubectl", "jane", "2026-11-01"), consumer("v1beta1", "kube-controller-manager", hpaUser, "2026-11-01"),
			}},
		},
		"releases of one client are one, its users are several": {
			record: func(r *Recorder, _ *testingclock.FakePassiveClock) {
				r.Record(v1, "kubectl/v1.36.0", "jane")
				r.Record(v1, "kubectl/v1.37.0", "jane")
				r.Record(v1, "kubectl/v1.37.0", "joe")
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{
				consumer("v1", "kubectl", "jane", "2026-11-01"), consumer("v1", "kubectl", "joe", "2026-11-01"),
			}},
		},
		"a client of yesterday that is back, and one that is not": {
			record: func(r *Recorder, c *testingclock.FakePassiveClock) {
				r.Record(v1, "a", "u")
				r.Record(v1, "b", "u")
				c.SetTime(noon.Add(12 * time.Hour))
				r.Record(v1, "b", "u")
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{
				consumer("v1", "b", "u", "2026-11-02"), consumer("v1", "a", "u", "2026-11-01"),
			}},
		},
		"a client of the day before yesterday is removed": {
			record: func(r *Recorder, c *testingclock.FakePassiveClock) {
				r.Record(v1, "a", "u")
				c.SetTime(noon.Add(36 * time.Hour))
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{}},
		},
		"a day is a day in UTC": {
			record: func(r *Recorder, c *testingclock.FakePassiveClock) {
				c.SetTime(time.Date(2026, 11, 2, 1, 0, 0, 0, time.FixedZone("east", 2*60*60)))
				r.Record(v1, "a", "u")
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{consumer("v1", "a", "u", "2026-11-01")}},
		},
		"a clock that is set back": {
			record: func(r *Recorder, c *testingclock.FakePassiveClock) {
				r.Record(v1, "a", "u")
				c.SetTime(noon.Add(-72 * time.Hour))
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{consumer("v1", "a", "u", "2026-10-29")}},
		},
		"a version that is not served": {
			record: func(r *Recorder, _ *testingclock.FakePassiveClock) {
				r.Record(schema.GroupVersion{Group: "metrics.k8s.io", Version: "v2"}, "a", "u")
				r.Record(schema.GroupVersion{Group: "else.k8s.io", Version: "v1"}, "a", "u")
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{}},
		},
		"the project's own tools are no consumers": {
			record: func(r *Recorder, _ *testingclock.FakePassiveClock) {
				r.Record(v1, v1alpha1.OperatorUserAgent+"/v0.2.0 (linux/amd64)", "operator")
				r.Record(v1, "kubectl-metrics-backend/v0.2.0", "jane")
				r.Record(v1, "kubectl-metrics-backend-of-another-hand/v1", "jane")
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{
				consumer("v1", "kubectl-metrics-backend-of-another-hand", "jane", "2026-11-01"),
			}},
		},
		"foreign bytes": {
			record: func(r *Recorder, _ *testingclock.FakePassiveClock) {
				for range 2 {
					r.Record(v1, "", "")
					r.Record(v1, " \t/1", "blank")
					r.Record(v1, "\x1b[31mred\x00", "line\nbreak")
					r.Record(v1, "\xff\xfe", "\u202etxt.exe")
					r.Record(v1, "агент/1", "пользователь")
				}
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{
				consumer("v1", "(none)", "(none)", "2026-11-01"), consumer("v1", "(none)", "blank", "2026-11-01"),
				consumer("v1", "??", "?txt.exe", "2026-11-01"), consumer("v1", "?[31mred?", "line?break", "2026-11-01"),
				consumer("v1", "агент", "пользователь", "2026-11-01"),
			}},
		},
		"long names are truncated, and not within a character": {
			record: func(r *Recorder, _ *testingclock.FakePassiveClock) {
				r.Record(v1, strings.Repeat("a", 1<<20), strings.Repeat("b", 1<<20))
				r.Record(v1, strings.Repeat("a", maxUserAgent-1)+"€", "x"+strings.Repeat("€", maxUser))
			},
			want: v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{
				consumer("v1", strings.Repeat("a", maxUserAgent-1), "x"+strings.Repeat("€", (maxUser-1)/3), "2026-11-01"),
				consumer("v1", strings.Repeat("a", maxUserAgent), strings.Repeat("b", maxUser), "2026-11-01"),
			}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakePassiveClock(noon)
			r := NewRecorder(clock, versions)
			tc.record(r, clock)
			if diff := cmp.Diff(tc.want, r.Report()); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

// TestBound checks that a client with ever new names replaces none of today's clients,
// which would hide why a version is kept.
func TestBound(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	r := NewRecorder(clock, versions)
	name := func(i int) string { return fmt.Sprintf("client-%04d", i) }
	for i := range v1alpha1.MaxConsumers {
		r.Record(v1, name(i), "u")
	}
	want := r.Report()
	for i := range 5 * maxOthers {
		r.Record(v1, name(i), "u")
	}
	want.Others = map[string]int{"v1.metrics.k8s.io": maxOthers}
	if diff := cmp.Diff(want, r.Report()); diff != "" {
		t.Errorf("under a flood (-want +got):\n%s", diff)
	}
	if n := len(r.logs[v1].others); n > maxOthers {
		t.Errorf("%d others are counted, more than %d", n, maxOthers)
	}

	// On the next day, new clients replace those that were not seen again, oldest first.
	clock.SetTime(noon.Add(24 * time.Hour))
	r.Record(v1, name(3), "u")
	for i := range v1alpha1.MaxConsumers - 1 {
		r.Record(v1, fmt.Sprintf("new-%02d", i), "u")
	}
	report := r.Report()
	if len(report.Consumers) != v1alpha1.MaxConsumers {
		t.Fatalf("%d consumers", len(report.Consumers))
	}
	for _, c := range report.Consumers {
		if c.LastSeen != "2026-11-02" || c.UserAgent != name(3) && !strings.HasPrefix(c.UserAgent, "new-") {
			t.Errorf("%+v has the place of a client of today", c)
		}
	}

	// Two days later nothing is left.
	clock.SetTime(noon.Add(72 * time.Hour))
	if diff := cmp.Diff(v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{}}, r.Report()); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}
	if n := len(r.logs[v1].others); n != 0 {
		t.Errorf("%d others are still counted", n)
	}
}

// TestOtherBecomesKnown checks that a client that is added is no longer counted.
func TestOtherBecomesKnown(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	r := NewRecorder(clock, versions)
	for i := range v1alpha1.MaxConsumers + 1 {
		r.Record(v1, fmt.Sprintf("client-%02d", i), "u")
	}
	if others := r.Report().Others["v1.metrics.k8s.io"]; others != 1 {
		t.Fatalf("%d others", others)
	}
	clock.SetTime(noon.Add(24 * time.Hour))
	r.Record(v1, fmt.Sprintf("client-%02d", v1alpha1.MaxConsumers), "u")
	report := r.Report()
	if len(report.Consumers) != v1alpha1.MaxConsumers || report.Others["v1.metrics.k8s.io"] != 1 {
		t.Errorf("%d consumers and %d others, want %d and the one that was displaced",
			len(report.Consumers), report.Others["v1.metrics.k8s.io"], v1alpha1.MaxConsumers)
	}
}

func TestConcurrentRecords(t *testing.T) {
	clock := testingclock.NewFakePassiveClock(noon)
	r := NewRecorder(clock, versions)
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			for i := range 500 {
				r.Record(versions[i%2], fmt.Sprintf("client-%d", i%10), "u")
				if worker == 0 && i%50 == 0 {
					r.Report()
				}
			}
		})
	}
	running.Wait()
	if n := len(r.Report().Consumers); n != 10 {
		t.Errorf("%d consumers, want 5 of each version", n)
	}
}

// newRequest returns a request as it is after authentication.
func newRequest(tb testing.TB, path, userAgent, userName string) *http.Request {
	tb.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("User-Agent", userAgent)
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("apis", "api"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		tb.Fatal(err)
	}
	ctx := request.WithRequestInfo(r.Context(), info)
	if userName != "" {
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: userName})
	}
	return r.WithContext(ctx)
}

func TestWithRecording(t *testing.T) {
	const externalPath = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue"
	external := []v1alpha1.ConsumerStatus{{Version: "v1beta1.external.metrics.k8s.io", UserAgent: "kubectl", User: "jane", LastSeen: "2026-11-01"}}
	kubectl := []v1alpha1.ConsumerStatus{consumer("v1", "kubectl", "jane", "2026-11-01")}
	tests := map[string]struct {
		path, user string
		// code is that of the answer, if the handler writes one.
		code int
		want []v1alpha1.ConsumerStatus
	}{
		"list":                          {"/apis/metrics.k8s.io/v1/nodes", "jane", 0, kubectl},
		"get":                           {"/apis/metrics.k8s.io/v1/namespaces/default/pods/a", "jane", 0, kubectl},
		"watch":                         {"/apis/metrics.k8s.io/v1/pods?watch=true", "jane", 0, kubectl},
		"discovery of a version":        {"/apis/metrics.k8s.io/v1", "system:kube-aggregator", 0, nil},
		"discovery of the group":        {"/apis/metrics.k8s.io", "jane", 0, nil},
		"OpenAPI":                       {"/openapi/v2", "system:aggregator", 0, nil},
		"health":                        {"/readyz", "system:anonymous", 0, nil},
		"the report itself":             {v1alpha1.ConsumersPath, "prober", 0, nil},
		"another group":                 {"/apis/apps/v1/deployments", "jane", 0, nil},
		"a metric":                      {externalPath, "jane", 200, external},
		"a metric, and nothing written": {externalPath, "jane", 0, external},
		"a watch of a metric":           {externalPath + "?watch=true", "jane", 200, external},
		"a source that fails":           {externalPath, "jane", 503, external},
		"a metric that nothing makes":   {externalPath, "jane", 404, nil},
		"a pod that is gone":            {"/apis/metrics.k8s.io/v1/namespaces/default/pods/a", "jane", 404, kubectl},
		"no user":                       {"/apis/metrics.k8s.io/v1/nodes", "", 0, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := NewRecorder(testingclock.NewFakePassiveClock(noon), append(versions, schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}))
			served := false
			handler := WithRecording(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if served = true; tc.code != 0 {
					w.WriteHeader(tc.code)
				}
			}), r)
			handler.ServeHTTP(httptest.NewRecorder(), newRequest(t, tc.path, "kubectl/v1.37.0 (linux/amd64)", tc.user))
			if !served {
				t.Error("the request was not served")
			}
			if diff := cmp.Diff(append([]v1alpha1.ConsumerStatus{}, tc.want...), r.Report().Consumers); diff != "" {
				t.Errorf("consumers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWithRecordingOutsideTheChain serves a request without the context of the chain.
func TestWithRecordingOutsideTheChain(t *testing.T) {
	r := NewRecorder(testingclock.NewFakePassiveClock(noon), versions)
	answer := httptest.NewRecorder()
	WithRecording(http.NotFoundHandler(), r).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/apis/metrics.k8s.io/v1/nodes", nil))
	if answer.Code != http.StatusNotFound || len(r.Report().Consumers) != 0 {
		t.Errorf("status %d, consumers %v", answer.Code, r.Report().Consumers)
	}
}
