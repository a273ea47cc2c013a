// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/metricsbackend/metrics-backend-operator/plugin/samples"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

// Of many nodes that differ the first by name is told of, every time: `--timeout`
// and a reader compare lines.
func TestDifferenceIsStable(t *testing.T) {
	of := func(cpu string) samples.Samples {
		all := samples.Samples{}
		for i := range 50 {
			all[fmt.Sprintf("node-%02d", i)] = samples.Sample{Time: plugincluster.Now, Usage: map[string]resource.Quantity{"cpu": resource.MustParse(cpu)}}
		}
		return all
	}
	snap := &snapshot{samplesMaxAge: time.Minute}
	if err, want := snap.difference(of("1"), of("2")), "their samples of node node-00 at one time differ"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
