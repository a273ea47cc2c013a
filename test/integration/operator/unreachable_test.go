// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// kube-apiserver cannot reach pods that the operator reaches: Available says so with
// kube-apiserver's own reason, clients skip the versions, nothing is taken away, and
// it ends by itself.
func TestAggregatorCannotReachServing(t *testing.T) {
	suite := take(t)
	cases := map[string]struct {
		set    func(broken bool)
		reason string
		// hint is what the message says besides.
		hint string
	}{
		"the way to the pods is closed": {
			suite.egress.setClosed, "FailedDiscoveryCheck",
			"kube-apiserver must be able to open TCP connections to port 10250 of the serving pods",
		},
		"the Service has no endpoints": {suite.workload.detached.Store, "MissingEndpoints", "kubectl describe apiservice"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			createBackend(t, suite, newBackend("cluster"))
			waitReady(t, suite, "cluster")
			before := uidsOfAPIServices(t, suite)
			// Before the backend is deleted, which does not need it.
			t.Cleanup(func() { tc.set(false) })
			tc.set(true)
			recheck(t, suite)
			backend := waitCondition(t, suite, "cluster", v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonAggregatorUnavailable)
			message := condition(backend, v1alpha1.ConditionAvailable).Message
			if !strings.Contains(message, "("+tc.reason+")") || !strings.Contains(message, tc.hint) {
				t.Errorf("Available says %q, want reason %s and what to look at", message, tc.reason)
			}
			if c := condition(backend, v1alpha1.ConditionServingReady); c.Status != metav1.ConditionTrue {
				t.Errorf("the pods are not at fault, but ServingReady is %+v", c)
			}
			outcome.Eventually(t, patience, "clients skip both versions", func(context.Context) error {
				if got := discovered(t, suite); len(got) > 0 {
					return fmt.Errorf("discovery lists %v as current", got)
				}
				return nil
			})
			tc.set(false)
			recheck(t, suite)
			waitReady(t, suite, "cluster")
			if after := uidsOfAPIServices(t, suite); after != before {
				t.Errorf("the APIServices were %v, then %v: made anew", before, after)
			}
			outcome.Eventually(t, patience, "both versions are back in discovery", func(context.Context) error {
				if got := strings.Join(discovered(t, suite), " "); got != "v1 v1beta1" {
					return fmt.Errorf("it lists %q", got)
				}
				return nil
			})
		})
	}
}

// recheck has kube-apiserver look at once whether it reaches the Services of the
// APIServices, which it does each half minute, or when they change; the operator looks, too.
func recheck(t *testing.T, suite *controlPlane) {
	t.Helper()
	for _, version := range []string{"v1", "v1beta1"} {
		outcome.Eventually(t, patience, "touch APIService "+version, func(ctx context.Context) error {
			service, err := getAPIService(ctx, suite, version)
			if err != nil {
				return err
			}
			service.Annotations = map[string]string{"test.example/recheck": strconv.FormatInt(time.Now().UnixNano(), 10)}
			return suite.admin.Update(ctx, service)
		})
	}
}

func uidsOfAPIServices(t *testing.T, suite *controlPlane) (uids [2]types.UID) {
	t.Helper()
	for i, version := range []string{"v1", "v1beta1"} {
		service, err := getAPIService(t.Context(), suite, version)
		if err != nil {
			t.Fatal(err)
		}
		uids[i] = service.UID
	}
	return uids
}
