// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

// A version that comes while the command waits ends it well.
func TestTimeoutWaitsForChecks(t *testing.T) {
	world := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.Add(10*years)))
	world.Unregister("v1")
	c := plugincluster.Start(t, world)
	mended := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.Add(10*years)))
	watched := &stepClock{Clock: clock.RealClock{}, step: func() { c.Change(func(w *plugincluster.World) { *w = *mended }) }}
	got, code := verifyText(t, c, func(o *options) { o.timeout, o.clock = time.Hour, watched })
	if code != output.OK {
		t.Errorf("exit code %d:\n%s", code, got)
	}
	want := "waiting for apiservice-registered v1.metrics.k8s.io, discovery-aggregated /apis, discovery-group /apis/metrics.k8s.io\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("it should have said once what it waits for; got:\n%s", got)
	}
}

// A permission that is missing does not come by waiting: the clock stands still.
func TestTimeoutDoesNotWaitForPermissions(t *testing.T) {
	for _, path := range []string{"/apis/apiregistration.k8s.io/v1/apiservices", "/apis/metricsbackend.io/v1alpha1/metricsbackends"} {
		t.Run(path, func(t *testing.T) {
			world := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.Add(10*years)))
			world.Codes[path] = http.StatusForbidden
			still := clocktesting.NewFakeClock(plugincluster.Now)
			got, code := verifyText(t, plugincluster.Start(t, world), func(o *options) { o.timeout, o.clock = time.Hour, still })
			if code != output.NotRun || strings.Contains(got, "waiting") {
				t.Errorf("exit code %d:\n%s", code, got)
			}
		})
	}
}

// stepClock passes every wait at once, after a step.
type stepClock struct {
	clock.Clock
	step func()
}

func (c *stepClock) After(time.Duration) <-chan time.Time {
	c.step()
	now := make(chan time.Time, 1)
	now <- c.Now()
	return now
}

func TestFlags(t *testing.T) {
	cases := map[string]struct {
		options options
		want    string
	}{
		"output":  {options{checks: checks, output: "xml"}, `--output "xml": must be text, json, yaml or junit`},
		"expect":  {options{checks: checks, output: "text", expect: []string{"1"}}, `--expect "1": must be versions of metrics.k8s.io such as v1,v1beta1`},
		"skip":    {options{checks: checks, output: "text", skip: []string{"data"}}, `--skip "data": there is no such check; known: backend-conditions, `},
		"timeout": {options{checks: checks, output: "text", timeout: -1}, "--timeout and --max-age must not be negative"},
	}
	named := options{checks: checks, output: "text", expect: []string{"v1.metrics.k8s.io", "v1beta1"}}
	if err := named.validate(); err != nil || !slices.Equal(named.expect, []string{"v1", "v1beta1"}) {
		t.Errorf("versions by the names of their APIServices: %v, %v", named.expect, err)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.options.validate(); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
