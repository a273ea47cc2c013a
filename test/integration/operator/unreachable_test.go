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
)

// kube-apiserver cannot reach pods that the operator reaches: Available says so with
// kube-apiserver's own reason, clients skip the versions, nothing is taken away, and
// it ends by itself.
func TestAggregatorCannotReachServing(t *testing.T) {
	cases := map[string]struct {
		set    func(broken bool)
		reason string
	}{
		"the way to the pods is closed": {suite.egress.setClosed, "FailedDiscoveryCheck"},
		"the Service has no endpoints":  {suite.workload.detached.Store, "MissingEndpoints"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			createBackend(t, newBackend("cluster"))
			waitReady(t, "cluster")
			before := uidsOfAPIServices(t)
			// Before the backend is deleted, which does not need it.
			t.Cleanup(func() { tc.set(false) })
			tc.set(true)
			recheck(t)
			backend := waitCondition(t, "cluster", v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonAggregatorUnavailable)
			message := condition(backend, v1alpha1.ConditionAvailable).Message
			if !strings.Contains(message, "("+tc.reason+")") || !strings.Contains(message, "can kube-apiserver reach the pods at port ") {
				t.Errorf("Available says %q, want reason %s and what to look at", message, tc.reason)
			}
			if c := condition(backend, v1alpha1.ConditionServingReady); c.Status != metav1.ConditionTrue {
				t.Errorf("the pods are not at fault, but ServingReady is %+v", c)
			}
			eventually(t, patience, "clients skip both versions", func(context.Context) error {
				if got := discovered(t); len(got) > 0 {
					return fmt.Errorf("discovery lists %v as current", got)
				}
				return nil
			})
			tc.set(false)
			recheck(t)
			waitReady(t, "cluster")
			if after := uidsOfAPIServices(t); after != before {
				t.Errorf("the APIServices were %v, then %v: made anew", before, after)
			}
			eventually(t, patience, "both versions are back in discovery", func(context.Context) error {
				if got := strings.Join(discovered(t), " "); got != "v1 v1beta1" {
					return fmt.Errorf("it lists %q", got)
				}
				return nil
			})
		})
	}
}

// recheck has kube-apiserver look at once whether it reaches the Services of the
// APIServices, which it does each half minute, or when they change.
func recheck(t *testing.T) {
	t.Helper()
	for _, version := range []string{"v1", "v1beta1"} {
		eventually(t, patience, "touch APIService "+version, func(ctx context.Context) error {
			service, err := getAPIService(ctx, version)
			if err != nil {
				return err
			}
			service.Annotations = map[string]string{"test.example/recheck": strconv.FormatInt(time.Now().UnixNano(), 10)}
			return suite.admin.Update(ctx, service)
		})
	}
}

func uidsOfAPIServices(t *testing.T) (uids [2]types.UID) {
	t.Helper()
	for i, version := range []string{"v1", "v1beta1"} {
		service, err := getAPIService(t.Context(), version)
		if err != nil {
			t.Fatal(err)
		}
		uids[i] = service.UID
	}
	return uids
}
