// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The first write says that work starts.
func TestNewBackend(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	mustReconcile(t, fc.reconciler())
	backend := fc.backend()
	if problems := conditionProblems(nil, backend); len(problems) > 0 {
		t.Error(problems)
	}
	if diff := cmp.Diff([]string{v1alpha1.Finalizer}, backend.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing)
	for _, kind := range readyConditions {
		fc.wantCondition(kind, metav1.ConditionUnknown, v1alpha1.ReasonNotYetReported)
	}
	if len(fc.pods()) > 0 {
		t.Error("pods before the finalizer was persisted")
	}
}

// A short failure leaves no trace in the status; a persistent one is reported.
func TestPersistentFailureIsReported(t *testing.T) {
	t.Parallel()
	fc, _ := ready(t)
	broken := errors.New("etcdserver: leader changed")
	fail := false
	r := fc.reconciler(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if fail {
				return broken
			}
			return c.Apply(ctx, o, opts...)
		},
	})
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Labels = map[string]string{"a": "b"} })
	fail = true
	before := fc.backend().ResourceVersion
	for i := range failuresToReport {
		if _, err := reconcileOnce(t, r); !errors.Is(err, broken) {
			t.Fatalf("attempt %d: %v, want the cause, for the queue to back off", i, err)
		}
		reported := fc.backend().ResourceVersion != before
		if last := i == failuresToReport-1; reported != last {
			t.Errorf("attempt %d: reported %t", i, reported)
		}
	}
	if problems := conditionProblems(nil, fc.backend()); len(problems) > 0 {
		t.Error(problems)
	}
	fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonAPICallFailed, "leader changed")
	fail = false
	fc.reconcileUntil(r, fc.isReady)
}

// The status is written although the spec changes meanwhile, but does not overwrite one that someone else wrote.
func TestStatusConflict(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*fakeCluster)
		want   string
	}{
		"the spec changed": {
			change: func(fc *fakeCluster) {
				fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Labels = map[string]string{"a": "b"} })
			},
			want: v1alpha1.ReasonProgressing,
		},
		"the status changed": {
			change: func(fc *fakeCluster) {
				backend := fc.backend()
				meta.SetStatusCondition(&backend.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: "Other"})
				fc.updateStatus(backend)
			},
			want: "Other",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend())
			before := fc.backend().Generation
			changed := false
			r := fc.reconciler(interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
					if !changed {
						changed = true
						tc.change(fc)
					}
					return c.SubResource(name).Patch(ctx, o, p, opts...)
				},
			})
			result, err := reconcileOnce(t, r)
			if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > time.Second {
				t.Errorf("%v, %+v: want a quiet new start", err, result)
			}
			fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionUnknown, tc.want)
			if seen := fc.backend().Status.ObservedGeneration; seen > before {
				t.Errorf("observedGeneration is %d, the status is of generation %d", seen, before)
			}
		})
	}
}

func TestProgressDelay(t *testing.T) {
	t.Parallel()
	cases := map[time.Duration]time.Duration{
		0: time.Second, 8 * time.Second: time.Second, 40 * time.Second: 5 * time.Second, time.Hour: 15 * time.Second, -time.Hour: time.Second,
	}
	fc := newFakeCluster(t, newBackend())
	for age, want := range cases {
		s := fc.reconciler().newState(newBackend())
		s.setCondition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, "X", "y")
		s.now = s.now.Add(age)
		if got := s.progressDelay(); got != want {
			t.Errorf("after %s: %s, want %s", age, got, want)
		}
	}
}

func TestStableMessage(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		err  error
		want string
	}{
		"plain": {errors.New("plain"), "plain"},
		"API":   {fmt.Errorf("apply: %w", apierrors.NewServiceUnavailable("down")), "ServiceUnavailable: down"},
		"local port": {&url.Error{Op: "Get", URL: "https://10.0.0.1/x", Err: &net.OpError{
			Op: "read", Source: &net.TCPAddr{Port: 41234}, Addr: &net.TCPAddr{Port: 443}, Err: errors.New("connection reset by peer"),
		}}, "read: connection reset by peer"},
		"URL": {&url.Error{Op: "Get", URL: "https://10.0.0.1/x?continue=abc", Err: errors.New("EOF")}, "EOF"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := stableErrorMessage(tc.err); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// eventFunc is an EventRecorder.
type eventFunc func(related runtime.Object, kind, reason, action, note string)

func (f eventFunc) Eventf(_, related runtime.Object, kind, reason, action, note string, args ...any) {
	f(related, kind, reason, action, fmt.Sprintf(note, args...))
}

func TestTransitions(t *testing.T) {
	t.Parallel()
	status := func(state v1alpha1.APIServiceState, conditions ...metav1.Condition) *v1alpha1.MetricsBackendStatus {
		s := &v1alpha1.MetricsBackendStatus{Conditions: conditions}
		if state != "" {
			s.APIServices = []v1alpha1.APIServiceStatus{{Name: "v1.metrics.k8s.io", State: state, Message: "why"}}
		}
		return s
	}
	is := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "message"}
	}
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	cases := map[string]struct {
		before, after *v1alpha1.MetricsBackendStatus
		want          []string
	}{
		"nothing":            {status(v1alpha1.APIServiceAvailable), status(v1alpha1.APIServiceAvailable), nil},
		"registered":         {status(v1alpha1.APIServicePending), status(v1alpha1.APIServiceRegistered), []string{"Normal VersionRegistered v1.metrics.k8s.io"}},
		"at once available":  {status(""), status(v1alpha1.APIServiceAvailable), []string{"Normal VersionRegistered v1.metrics.k8s.io"}},
		"available":          {status(v1alpha1.APIServiceRegistered), status(v1alpha1.APIServiceAvailable), nil},
		"retiring":           {status(v1alpha1.APIServiceAvailable), status(v1alpha1.APIServiceRetiring), []string{"Normal VersionRetiring v1.metrics.k8s.io"}},
		"retired":            {status(v1alpha1.APIServiceRetiring), status(""), []string{"Normal VersionRetired v1.metrics.k8s.io"}},
		"retired, wanted":    {status(v1alpha1.APIServiceRetiring), status(v1alpha1.APIServicePending), []string{"Normal VersionRetired v1.metrics.k8s.io"}},
		"stalled":            {status(""), status("", is("Stalled", yes, "Conflict")), []string{"Warning Conflict "}},
		"stalled by another": {status("", is("Stalled", yes, "Conflict")), status("", is("Stalled", yes, "NotOwned")), []string{"Warning NotOwned "}},
		"still stalled":      {status("", is("Stalled", yes, "Conflict")), status("", is("Stalled", yes, "Conflict")), nil},
		"resumed":            {status("", is("Stalled", yes, "Conflict")), status(""), []string{"Normal Resumed "}},
		"answers":            {status(""), status("", is("Available", yes, "Succeeded")), []string{"Normal Available "}},
		"never answered":     {status(""), status("", is("Available", no, "RequestFailed")), nil},
		"answers no more":    {status("", is("Available", yes, "Succeeded")), status("", is("Available", no, "RequestFailed")), []string{"Warning RequestFailed "}},
		"a version is added": {status("", is("Available", yes, "Succeeded")), status("", is("Available", no, "DependencyNotReady")), nil},
		"it is registered":   {status("", is("Available", yes, "Succeeded")), status("", is("Available", no, "Progressing")), nil},
		"is deleted":         {status("", is("Available", yes, "Succeeded")), status("", is("Available", no, "Deleting")), nil},
		"certificate":        {status(""), status("", is("CertificatesValid", yes, "Succeeded")), []string{"Normal CertificateValid "}},
		"kubelets fail":      {status(""), status("", is("SourcesHealthy", no, "KubeletsFailing")), []string{"Warning KubeletsFailing "}},
		"rollout fails":      {status("", is("ServingReady", no, "RollingOut")), status("", is("ServingReady", no, "RolloutFailed")), []string{"Warning RolloutFailed "}},
		"rollout":            {status("", is("ServingReady", yes, "Succeeded")), status("", is("ServingReady", no, "RollingOut")), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			record := func(related runtime.Object, kind, reason, action, note string) {
				name := ""
				if service, ok := related.(*apiregistrationv1.APIService); ok {
					name = service.Name
				}
				got = append(got, kind+" "+reason+" "+name)
				if note == "" || action == "" {
					t.Errorf("%s has no note or action", reason)
				}
			}
			r := &Reconciler{Options: Options{Events: eventFunc(record)}}
			r.recordTransitions(&reconcileState{backend: &v1alpha1.MetricsBackend{Status: *tc.after}, storedStatus: *tc.before})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each transition is recorded once, based on the stored status.
func TestEventsAreRecordedOnce(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	recorder := events.NewFakeRecorder(1000)
	r := fc.reconciler()
	r.Events = recorder
	fc.reconcileUntil(r, fc.isReady)
	r = fc.reconciler()
	r.Events = recorder
	for range 3 {
		mustReconcile(t, r) // a new process
	}
	close(recorder.Events)
	seen := map[string]int{}
	for e := range recorder.Events {
		seen[e]++
	}
	if len(seen) == 0 {
		t.Error("no events")
	}
	for e, n := range seen {
		if n > 1 {
			t.Errorf("recorded %d times: %s", n, e)
		}
	}
}

// Metrics export the conditions, and are deleted with the object.
func TestMetrics(t *testing.T) {
	series := func() []string {
		t.Helper()
		families, err := ctrlmetrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, family := range families {
			if !strings.HasPrefix(family.GetName(), "metrics_backend_") {
				continue
			}
			for _, m := range family.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if labels["backend"] == backendName && m.GetGauge().GetValue() != 0 {
					out = append(out, strings.TrimSpace(labels["type"]+" "+labels["status"]))
				}
			}
		}
		slices.Sort(out)
		return out
	}
	forgetMetrics(backendName) // of the tests before
	fc, r := ready(t)
	want := []string{
		"", // the certificate
		"APIServicesRegistered True", "Available True", "CertificatesValid True", "ConsumersCompatible True", "Ready True", "RulesReady True", "ServingReady True",
		"SourcesHealthy True", "StaleAPIServicesRemoved True",
	}
	if diff := cmp.Diff(want, series()); diff != "" {
		t.Errorf("while ready (-want +got):\n%s", diff)
	}
	fc.delete(fc.backend())
	fc.reconcileUntil(r, fc.isGone)
	mustReconcile(t, r)
	if left := series(); len(left) > 0 {
		t.Errorf("after the deletion: %v", left)
	}
}
