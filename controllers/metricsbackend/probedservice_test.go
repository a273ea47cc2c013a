// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// unresponsiveEndpoints never answer.
type unresponsiveEndpoints struct{ Prober }

func (unresponsiveEndpoints) Probe(ctx context.Context, _ servingclient.Pod, _ []schema.GroupVersion) (*servingclient.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	<-ctx.Done()
	return nil, ctx.Err()
}

// A Service with hundreds of unresponsive endpoints does not block a worker for long.
func TestProbeEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Pods: unresponsiveEndpoints{}})
		found := &probedService{}
		for i := range 500 {
			found.endpoints = append(found.endpoints, &probed{connection: servingclient.Pod{Address: fmt.Sprintf("192.0.2.%d:%d", i%250, 10250+i)}})
		}
		begun := time.Now()
		r.probeEndpoints(t.Context(), found, client.ObjectKey{}, "token", nil)
		if took := time.Since(begun); took > probeTimeout {
			t.Errorf("took %s", took)
		}
		for _, e := range found.endpoints {
			if e.err == nil {
				t.Errorf("endpoint %s counts as asked", e.connection.Address)
			}
		}
	})
}
