// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

const years = 365 * 24 * time.Hour

// verifyText runs the checks once, as the command does, and returns what it
// printed and its exit code.
func verifyText(t *testing.T, c *plugincluster.Cluster, change func(*options)) (string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	o := &options{streams: genericiooptions.IOStreams{Out: &out, ErrOut: &errs}, clock: clock.RealClock{}, command: "verify", checks: checks, output: "text"}
	if change != nil {
		change(o)
	}
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	err := o.run(t.Context(), c.Connection)
	if err != nil && !errors.Is(err, output.ErrNotMet) {
		errs.WriteString("error: " + err.Error() + "\n")
	}
	return out.String() + errs.String(), output.ExitCode(err)
}

func TestHealthy(t *testing.T) {
	for _, format := range []string{"text", "json", "junit"} {
		t.Run(format, func(t *testing.T) {
			world := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.Add(10*years)))
			world.ServeOthers()
			got, code := verifyText(t, plugincluster.Start(t, world), func(o *options) { o.output = format })
			plugincluster.Golden(t, "healthy."+format, got)
			if code != output.OK {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestNoMetrics: what discovery lists while there are no metrics is none.
func TestNoMetrics(t *testing.T) {
	world := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.Add(10*years)))
	world.ServeOthers()
	for version := range world.Others {
		world.Others[version] = []string{v1alpha1.NoMetrics}
		if strings.HasPrefix(version, "custom") {
			world.Others[version] = []string{"namespaces/" + v1alpha1.NoMetrics}
		}
	}
	got, code := verifyText(t, plugincluster.Start(t, world), nil)
	if n := strings.Count(got, "; metrics in discovery: 0\n"); n != 3 || code != output.OK {
		t.Errorf("%d versions without metrics, exit code %d:\n%s", n, code, got)
	}
}
