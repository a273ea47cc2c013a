// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorapplyconfigurations "k8s.io/kube-aggregator/pkg/client/applyconfiguration"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// Equal failures have equal messages.
func TestStableMessage(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"error trying to reach service: dial tcp 10.0.0.7:10250: i/o timeout":  "error trying to reach service: dial tcp: i/o timeout",
		"dial tcp [fd00::7]:10250: connect: connection refused":                "dial tcp: connect: connection refused",
		"the server is currently unable to handle the request":                 "the server is currently unable to handle the request",
		"read tcp 10.0.0.1:41234->10.0.0.7:10250: read: connection reset by x": "read tcp: read: connection reset by x",
	} {
		if got := StableMessage(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// answers answers requests for /readyz with nil, and those for the canary API with canary.
type answers struct{ canary error }

func (a *answers) Answers(_ context.Context, path string) error {
	if strings.HasSuffix(path, "/readyz") {
		return nil
	}
	return a.canary
}

// cluster is an API server with APIServices, and the checks of some MetricsBackends.
type cluster struct {
	t      *testing.T
	raw    client.WithWatch
	pods   answers
	now    time.Time
	states map[string]*State
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	kinds := runtime.NewScheme()
	if err := apiregistrationv1.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	raw := fake.NewClientBuilder().WithScheme(kinds).WithTypeConverters(aggregatorapplyconfigurations.NewTypeConverter(kinds)).Build()
	return &cluster{t: t, raw: withUIDs(raw), now: start, states: map[string]*State{}}
}

// withUIDs returns a client that gives the canary API a UID, and deletes it only if it has
// the one that is asked for, which a fake client does not.
func withUIDs(raw client.WithWatch) client.WithWatch {
	created := 0
	return interceptor.NewClient(raw, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := c.Apply(ctx, o, opts...); err != nil {
				return err
			}
			live := &apiregistrationv1.APIService{}
			if err := c.Get(ctx, client.ObjectKey{Name: manifests.CanaryAPIServiceName}, live); err != nil {
				return err
			}
			if live.UID == "" {
				created++
				live.UID = types.UID(strconv.Itoa(created))
			}
			o.(*apiregistrationv1ac.APIServiceApplyConfiguration).WithUID(live.UID)
			return c.Update(ctx, live)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			live := &apiregistrationv1.APIService{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
				return err
			}
			options := (&client.DeleteOptions{}).ApplyOptions(opts)
			if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != live.UID {
				return apierrors.NewConflict(schema.GroupResource{Resource: "apiservices"}, o.GetName(), errors.New("another UID"))
			}
			return c.Delete(ctx, o)
		},
	})
}

// canary returns the live APIService of the canary API, or nil.
func (c *cluster) canary() *apiregistrationv1.APIService {
	c.t.Helper()
	live := &apiregistrationv1.APIService{}
	switch err := c.raw.Get(c.t.Context(), client.ObjectKey{Name: manifests.CanaryAPIServiceName}, live); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		c.t.Fatal(err)
	}
	return live
}

func (c *cluster) deleteCanary() {
	c.t.Helper()
	if err := c.raw.Delete(c.t.Context(), c.canary()); err != nil {
		c.t.Fatal(err)
	}
}

// check does one step for a backend whose pass has read the canary API.
func (c *cluster) check(backend string, canary *apiregistrationv1.APIService) lifecycle.Reach {
	c.t.Helper()
	checker := &Checker{Client: c.raw, Requester: &c.pods}
	serving := manifests.Serving{Backend: backend, Namespace: "ns"}
	if c.states[backend] == nil {
		c.states[backend] = &State{}
	}
	result, err := checker.Check(c.t.Context(), Input{Serving: serving, Target: serving.Target([]byte("CA")), Canary: canary, Now: c.now}, c.states[backend])
	if err != nil {
		c.t.Fatal(err)
	}
	return result
}

// TestCanariesDoNotMix has two MetricsBackends that check at the same time.
func TestCanariesDoNotMix(t *testing.T) {
	t.Parallel()
	waits, passed := lifecycle.Reach{RetryAfter: canaryPoll}, lifecycle.Reach{Reached: true}
	for name, tc := range map[string]struct {
		happen func(*cluster) []lifecycle.Reach
		want   []lifecycle.Reach
		// holder has the canary API then.
		holder string
	}{
		"both have read that there is none": {func(c *cluster) []lifecycle.Reach {
			return []lifecycle.Reach{c.check("a", nil), c.check("b", nil), c.check("b", c.canary())}
		}, []lifecycle.Reach{waits, waits, waits}, "a"},
		"the other one's is younger than what was read": {func(c *cluster) []lifecycle.Reach {
			results, read := []lifecycle.Reach{c.check("b", nil)}, c.canary()
			c.deleteCanary()
			return append(results, c.check("a", nil), c.check("b", read))
		}, []lifecycle.Reach{waits, waits, passed}, "a"},
		"it was deleted": {func(c *cluster) []lifecycle.Reach {
			results := []lifecycle.Reach{c.check("b", nil)}
			c.deleteCanary()
			return append(results, c.check("b", nil), c.check("a", nil))
		}, []lifecycle.Reach{waits, waits, waits}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			if diff := cmp.Diff(tc.want, tc.happen(c)); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if live := c.canary(); live == nil || live.Labels[v1alpha1.LabelCanary] != tc.holder {
				t.Errorf("the canary API is %+v, want that of %s", live, tc.holder)
			}
		})
	}
}

// TestCanaryFailure checks what is said of a canary API that did not answer in time.
func TestCanaryFailure(t *testing.T) {
	t.Parallel()
	const hint = "must be able to open TCP connections"
	unavailable := func(message string) *apiregistrationv1.APIServiceCondition {
		return &apiregistrationv1.APIServiceCondition{
			Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse, Reason: "FailedDiscoveryCheck", Message: message,
		}
	}
	rejected := apierrors.NewServiceUnavailable("service unavailable")
	for name, tc := range map[string]struct {
		failed    error
		condition *apiregistrationv1.APIServiceCondition
		hint      bool
		want      string
	}{
		"no way to the pods": {rejected, unavailable("dial tcp 10.0.0.1:10250: i/o timeout"), true, "dial tcp: i/o timeout"},
		"not trusted":        {rejected, unavailable("x509: certificate signed by unknown authority"), false, "x509"},
		"pods without it": {
			apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.CanaryGroup, Resource: v1alpha1.CanaryResource}, "a"),
			unavailable("bad status from https://10.0.0.1:10250: 404"), false, "not found",
		},
		"not allowed": {apierrors.NewForbidden(schema.GroupResource{Resource: v1alpha1.CanaryResource}, "a", nil), nil, false, "forbidden"},
		"no answer":   {errors.New("context deadline exceeded"), nil, true, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.check("a", nil)
			c.pods.canary = tc.failed
			c.check("a", c.canary())
			c.now = c.now.Add(canaryLifetime)
			live := c.canary()
			if tc.condition != nil {
				live.Status.Conditions = append(live.Status.Conditions, *tc.condition)
			}
			if diff := cmp.Diff(lifecycle.Reach{}, c.check("a", live)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			why := c.states["a"].Paused(c.now)
			if strings.Contains(why.Message, hint) != tc.hint || !strings.Contains(why.Message, tc.want) {
				t.Errorf("says %q, want %q, what to open: %t", why.Message, tc.want, tc.hint)
			}
			if !strings.Contains(why.Message, "the next try is at 2026-11-01T12:10:30Z") {
				t.Errorf("does not say when it is tried again: %q", why.Message)
			}
		})
	}
}

// A canary API that nobody requested in time proves nothing: it is checked again.
func TestCanaryNotRequested(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.check("a", nil)
	c.now = c.now.Add(canaryLifetime)
	if diff := cmp.Diff(lifecycle.Reach{RetryAfter: canaryPoll}, c.check("a", c.canary())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if why := c.states["a"].Paused(c.now); why.Left != 0 {
		t.Errorf("paused for %s: %s", why.Left, why.Message)
	}
	if c.canary() != nil {
		t.Error("it is left")
	}
}

// TestCanaryLeft checks which canary APIs are deleted without a reconciliation.
func TestCanaryLeft(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(context.Background())
	end()
	look := func(c *Checker) error { return c.sweep(context.Background()) }
	stop := func(c *Checker) error { return c.Start(ended) }
	for name, tc := range map[string]struct {
		// own: this process has registered it, age ago.
		own  bool
		age  time.Duration
		do   func(*Checker) error
		left bool
	}{
		"old":                                  {age: canaryLifetime, do: look},
		"young":                                {age: canaryLifetime - time.Second, do: look, left: true},
		"this process ends":                    {own: true, do: stop},
		"this process ends, another's is left": {do: stop, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.check("a", nil)
			live := c.canary()
			live.CreationTimestamp = metav1.NewTime(start)
			if err := c.raw.Update(t.Context(), live); err != nil {
				t.Fatal(err)
			}
			checker := &Checker{Client: c.raw, APIReader: c.raw, Clock: testingclock.NewFakePassiveClock(start.Add(tc.age))}
			if tc.own {
				checker.own.Store(&live.UID)
			}
			if err := tc.do(checker); err != nil {
				t.Fatal(err)
			}
			if left := c.canary() != nil; left != tc.left {
				t.Errorf("left: %t, want %t", left, tc.left)
			}
		})
	}
}
