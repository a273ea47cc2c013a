// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/test/etcdwrites"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// An operator that works through an hour of simulated time on a backend that is
// ready, with every request to kube-apiserver, pods and the aggregator real,
// persists nothing. Nor does the one that runs beside it in real time.
func TestSteadyHourPersistsLeasesOnly(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("cluster"))
	waitReady(t, suite, "cluster")
	settled(t, suite)

	simulated := testingclock.NewFakePassiveClock(time.Now())
	recorder := events.NewFakeRecorder(100)
	reconciler := newReconciler(t, suite, func(o *metricsbackend.Options) {
		o.Events, o.Clock, o.Aggregator = recorder, simulated, simulatedAges{o.Aggregator, simulated}
	})
	writes, err := etcdwrites.Start(t.Context(), suite.etcd)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	request := ctrl.Request{NamespacedName: types.NamespacedName{Name: "cluster"}}
	looks := 0
	for end := simulated.Now().Add(time.Hour); simulated.Now().Before(end); looks++ {
		result, err := reconciler.Reconcile(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if result.RequeueAfter == 0 {
			t.Fatal("never looks again")
		}
		simulated.SetTime(simulated.Now().Add(result.RequeueAfter))
	}
	written, err := writes.Stop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leases := 0
	for key, n := range written {
		if etcdwrites.IsLease(key) {
			leases += n
			continue
		}
		t.Errorf("%s was written %d times", key, n)
	}
	if len(recorder.Events) > 0 {
		t.Errorf("%d events, the first: %s", len(recorder.Events), <-recorder.Events)
	}
	if looks < 60 {
		t.Errorf("only %d looks in an hour: nothing was proven", looks)
	}
	t.Logf("%d looks in a simulated hour, which took %s; %d writes of leases", looks, time.Since(began).Round(time.Millisecond), leases)
}

// settled waits until the simulated controllers have written for the last time.
func settled(t *testing.T, suite *controlPlane) {
	t.Helper()
	outcome.Eventually(t, patience, "nothing is written any more", func(ctx context.Context) error {
		writes, err := etcdwrites.Start(ctx, suite.etcd)
		if err != nil {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		written, err := writes.Stop(ctx)
		if err != nil {
			return err
		}
		for key := range written {
			if !etcdwrites.IsLease(key) {
				return fmt.Errorf("%s was written", key)
			}
		}
		return nil
	})
}

// simulatedAges asks the aggregator for samples that are as old, in real time, as
// they should be in simulated time.
type simulatedAges struct {
	metricsbackend.Aggregator
	simulated *testingclock.FakePassiveClock
}

func (a simulatedAges) FreshNodeSample(ctx context.Context, gv schema.GroupVersion, since time.Time) (bool, error) {
	return a.Aggregator.FreshNodeSample(ctx, gv, since.Add(-a.simulated.Since(time.Now())))
}

// newReconciler returns an operator without a cache, with the operator's rights.
func newReconciler(t *testing.T, suite *controlPlane, change func(*metricsbackend.Options)) *metricsbackend.Reconciler {
	t.Helper()
	kinds, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	config := suite.operator.Config()
	config.QPS = -1
	direct, err := client.NewWithWatch(config, client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = dialAdvertised(suite.config.Host)
	aggregated, err := aggregator.NewClient(config, direct)
	if err != nil {
		t.Fatal(err)
	}
	options := metricsbackend.Options{
		Client: direct, APIReader: direct, Events: &events.FakeRecorder{},
		Pods: servingclient.NewClient(suite.pods.dial), Aggregator: aggregated,
		Clock:     clock.RealClock{},
		Namespace: systemNamespace, Namespaces: []string{systemNamespace, otherNamespace},
		ServingImage: imageBoth,
	}
	change(&options)
	return metricsbackend.New(options)
}
