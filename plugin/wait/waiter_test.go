// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

// What a single look says, for each state on the way.
func TestLookOnce(t *testing.T) {
	const apiServices, backends = "/apis/apiregistration.k8s.io/v1/apiservices", "/apis/metricsbackend.io/v1alpha1/metricsbackends"
	fail := func(path string, code int) func(*plugincluster.World) {
		return func(w *plugincluster.World) { w.Codes[path] = code }
	}
	cases := map[string]struct {
		goal   string
		change func(w *plugincluster.World)
		// waits is what the goal waits for until the time is up; else want is all that is printed.
		waits, want string
		code        int
	}{
		"ready": {goal: "ready", want: "metricsbackend/cluster has Ready=True\n"},
		"not ready": {goal: "ready", waits: "it is Unknown, Progressing: 1 of 2 pods is up to date", change: func(w *plugincluster.World) {
			w.Condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "Progressing", "1 of 2 pods is up to date")
		}},
		"an old look of the operator": {goal: "condition=Available", waits: "the operator has not looked at generation 4 of the spec yet", change: func(w *plugincluster.World) {
			w.Backends[0].Generation++
		}},
		"an old condition": {goal: "condition=Available", waits: "the operator has not looked at generation 4 of the spec yet", change: func(w *plugincluster.World) {
			w.Backends[0].Generation, w.Backends[0].Status.ObservedGeneration = 4, 4
		}},
		"no such condition": {goal: "condition=Stalled", waits: "there is no such condition yet"},
		"not stalled":       {goal: "condition=Stalled=False", want: "metricsbackend/cluster has Stalled=False\n"},
		"a healthy source": {goal: "source=keda", want: "metricsbackend/cluster has a healthy source keda\n", change: func(w *plugincluster.World) {
			w.Backends[0].Status.Sources = []v1alpha1.SourceStatus{{Name: "other"}, {Name: "keda", Healthy: true}}
		}},
		"a failing source": {goal: "source=keda", waits: "it is not, Timeout: no answer", change: func(w *plugincluster.World) {
			w.Backends[0].Status.Sources = []v1alpha1.SourceStatus{{Name: "keda", Reason: "Timeout", Message: "no answer"}}
		}},
		"a source of which nobody reports": {goal: "source=keda", waits: "no serving pod has reported on it yet"},
		"a source of an old spec": {goal: "source=keda", waits: "the operator has not looked at generation 4 of the spec yet", change: func(w *plugincluster.World) {
			w.Backends[0].Generation++
			w.Backends[0].Status.Sources = []v1alpha1.SourceStatus{{Name: "keda", Healthy: true}}
		}},
		"a source, and pods with an old spec": {goal: "source=keda", waits: "pod a does not use the settings of generation 3 yet", change: func(w *plugincluster.World) {
			w.Backends[0].Status.Sources = []v1alpha1.SourceStatus{{Name: "keda", Healthy: true}}
			w.Condition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionUnknown, v1alpha1.ReasonProgressing, "pod a does not use the settings of generation 3 yet")
		}},
		"versions":              {goal: "versions=v1,v1beta1", want: "metrics.k8s.io: v1, v1beta1, and no other version, available and in discovery\n"},
		"none of another group": {goal: "versions=none.custom.metrics.k8s.io", want: "custom.metrics.k8s.io is gone, from discovery too\n"},
		"one of another group":  {goal: "versions=v1beta1.external.metrics.k8s.io", waits: "v1beta1.external.metrics.k8s.io is not registered"},
		"one too many": {
			goal: "versions=v1beta1", waits: "v1.metrics.k8s.io is registered and points to metrics-backend-system/metrics-serving-cluster:443; metricsbackend/cluster: kube-apiservers still list v1",
			change: func(w *plugincluster.World) {
				w.Condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "Progressing", "kube-apiservers still list v1")
			},
		},
		"deleted, still in discovery": {goal: "versions=v1beta1", waits: "v1.metrics.k8s.io is deleted, and still in discovery", change: func(w *plugincluster.World) {
			w.APIServices = w.APIServices[1:]
		}},
		"released": {goal: "released=metrics.k8s.io", want: "no MetricsBackend serves metrics.k8s.io\n", change: func(w *plugincluster.World) {
			*w = *plugincluster.MetricsServer()
		}},
		"released, and pods still answer": {
			goal: "released=external.metrics.k8s.io", waits: "the pods of MetricsBackend cluster answer until every kube-apiserver knows that",
			change: func(w *plugincluster.World) {
				w.Backends[0].Status.APIServices = append(w.Backends[0].Status.APIServices, v1alpha1.APIServiceStatus{Name: "v1beta1.external.metrics.k8s.io"})
			},
		},
		"not released": {
			goal: "released=metrics.k8s.io", waits: "v1.metrics.k8s.io is MetricsBackend cluster's; metricsbackend/cluster: HPA shop/cart reads a metric that only it serves",
			change: func(w *plugincluster.World) {
				w.Condition(v1alpha1.ConditionReady, metav1.ConditionFalse, "ConsumersActive", "HPA shop/cart reads a metric that only it serves")
			},
		},
		"one too few": {goal: "versions=v1,v1beta1", waits: "v1.metrics.k8s.io is not registered", change: func(w *plugincluster.World) { w.Unregister("v1") }},
		"not available": {goal: "versions=v1,v1beta1", waits: "v1.metrics.k8s.io is not available, MissingEndpoints: no addresses", change: func(w *plugincluster.World) {
			plugincluster.SetAvailable(&w.APIServices[0], false, "MissingEndpoints", "no addresses")
		}},
		"not in discovery": {
			goal: "versions=v1,v1beta1", waits: "v1.metrics.k8s.io is available, and not in discovery yet, where it is listed as stale",
			change: func(w *plugincluster.World) { w.Current, w.Stale = []string{"v1beta1"}, []string{"v1"} },
		},
		"gone, and still stale in discovery": {
			goal: "versions=none", waits: "v1.metrics.k8s.io is deleted, and still in discovery, where it is listed as stale",
			change: func(w *plugincluster.World) {
				w.Unregister("v1")
				w.Unregister("v1beta1")
				w.Stale = []string{"v1"}
			},
		},
		"of metrics-server": {
			goal: "versions=v1beta1", want: "metrics.k8s.io: v1beta1, and no other version, available and in discovery\n",
			change: func(w *plugincluster.World) { *w = *plugincluster.MetricsServer() },
		},
		"none": {goal: "versions=none", want: "metrics.k8s.io is gone, from discovery too\n", change: func(w *plugincluster.World) {
			*w = *plugincluster.MetricsServer()
			w.Unregister("v1beta1")
		}},
		"no right": {
			goal: "versions=v1", code: output.NotRun, change: fail(apiServices, http.StatusForbidden),
			want: `error: list APIServices: forbidden: User "bob" cannot get path "/apis/apiregistration.k8s.io/v1/apiservices" (you need the permission to list apiservices.apiregistration.k8s.io)` + "\n",
		},
		"no right to the backend": {
			goal: "ready", code: output.NotRun, change: fail(backends+"/cluster", http.StatusForbidden),
			want: `error: get MetricsBackend cluster: forbidden: User "bob" cannot get path "/apis/metricsbackend.io/v1alpha1/metricsbackends/cluster"` + "\n",
		},
		"versions without the right to backends": {
			goal: "versions=v1,v1beta1", change: fail(backends, http.StatusForbidden),
			want: "metrics.k8s.io: v1, v1beta1, and no other version, available and in discovery\n",
		},
		"kube-apiserver restarts before the first list": {
			goal: "versions=v1", change: fail(backends, http.StatusServiceUnavailable),
			waits: "list MetricsBackends: the server is currently unable to handle the request",
		},
		"kube-apiserver restarts": {
			goal: "versions=v1", change: fail(apiServices, http.StatusServiceUnavailable),
			waits: "list APIServices: the server is currently unable to handle the request",
		},
		"the backend goes": {
			goal: "ready", code: output.NotMet, change: func(w *plugincluster.World) { w.Backends = nil },
			want: `error: MetricsBackend "cluster" was deleted meanwhile` + "\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := plugincluster.Healthy(nil)
			if tc.change != nil {
				tc.change(world)
			}
			w, out := waiting(t, plugincluster.Start(t, world), tc.goal)
			if tc.waits != "" {
				tc.code = output.NotMet
				tc.want = fmt.Sprintf("waiting for %s: %s\nerror: %s not reached within 0s\n", w.goal, tc.waits, w.goal)
			}
			// Its time is up after the first look.
			w.clock = clocktesting.NewFakeClock(plugincluster.Now)
			err := w.run(t.Context())
			// As the plugin does, which takes it that ErrNotMet was explained.
			if err != nil && !errors.Is(err, output.ErrNotMet) {
				_, _ = out.Write([]byte("error: " + err.Error() + "\n"))
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if code := output.ExitCode(err); code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
		})
	}
}

func waiting(t *testing.T, c *plugincluster.Cluster, text string) (*waiter, *printed) {
	t.Helper()
	goal, err := parseGoal(text)
	if err != nil {
		t.Fatal(err)
	}
	out := &printed{written: make(chan struct{}, 100)}
	return &waiter{
		cluster: c.Connection, streams: genericiooptions.IOStreams{Out: out, ErrOut: out},
		clock: clock.RealClock{}, goal: goal, backend: "cluster", chosen: goal.ofBackend(),
	}, out
}

// printed collects lines and signals each.
type printed struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func (o *printed) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written <- struct{}{}
	return o.text.Write(p)
}

func (o *printed) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// A change that a watch tells of ends the wait; each state is told once. The clock
// stands still, so that nothing but the watch can have told.
func TestWatchEndsWait(t *testing.T) {
	world := plugincluster.Healthy(nil)
	world.Condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "Progressing", "1 of 2 pods is up to date")
	c := plugincluster.Start(t, world)
	w, out := waiting(t, c, "ready")
	w.timeout = time.Minute
	w.clock = clocktesting.NewFakeClock(plugincluster.Now)
	ended := make(chan error, 1)
	go func() { ended <- w.run(t.Context()) }()
	<-out.written
	c.AwaitWatch(t)
	c.Change(func(world *plugincluster.World) {
		world.Condition(v1alpha1.ConditionReady, metav1.ConditionTrue, "Succeeded", "all components match the spec")
	})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	want := "waiting for Ready=True: it is Unknown, Progressing: 1 of 2 pods is up to date\nmetricsbackend/cluster has Ready=True\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInterrupted(t *testing.T) {
	c := plugincluster.Start(t, plugincluster.Healthy(nil))
	w, out := waiting(t, c, "versions=none")
	w.timeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx) }()
	<-out.written
	cancel()
	err := <-ended
	if got, want := errorText(err), "interrupted while waiting for metrics.k8s.io with no version"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if code := output.ExitCode(err); code != output.NotRun {
		t.Errorf("exit code %d", code)
	}
}
