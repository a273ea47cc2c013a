// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// An operator that ends with its namespace does not wait. Without an account, or with an
// invalid token, only readiness of endpoints is known.
func TestRetireAllRestores(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		endpoints int
		// token: the operator has an old one. answer is that of the endpoints.
		token  bool
		answer error
		want   string
	}{
		"no account can be made":                      {endpoints: 2, want: metricsServer},
		"no account can be made, and nobody is ready": {endpoints: 0},
		"nobody answers":                              {endpoints: 2, token: true, answer: errors.New("no answer within 5s")},
		"the account is unknown":                      {endpoints: 2, token: true, answer: fmt.Errorf("ask /apis: %w", servingclient.ErrUnauthorized), want: metricsServer},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "adopted", adoptedCluster)
			r := fc.live(intercepted(func(c call, make func() error) error {
				if c.name == "create token" && !tc.token {
					return apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "guest", errors.New("it is being terminated"))
				}
				return make()
			}))
			if tc.token {
				_, _, err := r.guestToken(t.Context(), r.newState(fc.backend()))
				fc.must(err)
			}
			fc.scaleMetricsServer(tc.endpoints, v1beta1)
			for address := range fc.other.serves {
				fc.other.failing[address] = tc.answer
			}
			fc.must(r.RetireAll(t.Context()))
			fc.wantPointsTo(v1beta1, tc.want)
			fc.wantPointsTo(v1, "")
		})
	}
}

// kube-apiserver updates APIServices while the pods behind them end: a conflict is
// retried, and blocks no other version.
func TestRetireAllRetries(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "adopted", adoptedCluster)
	conflicts := map[string]int{}
	r := fc.live(intercepted(func(c call, make func() error) error {
		if conflicts[c.name]++; strings.Contains(c.name, "APIService v1") && c.write && conflicts[c.name] == 1 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "apiservices"}, c.name, errors.New("it was modified"))
		}
		return make()
	}))
	fc.must(r.RetireAll(t.Context()))
	fc.wantPointsTo(v1, "")
	fc.wantPointsTo(v1beta1, metricsServer)
	if conflicts["delete *v1.APIService v1.metrics.k8s.io"] != 2 || conflicts["update *v1.APIService v1beta1.metrics.k8s.io"] != 2 {
		t.Errorf("attempts: %v", conflicts)
	}
}

// A version that cannot be removed is named, after the others are removed.
func TestRetireAllGivesUp(t *testing.T) {
	t.Parallel()
	fc, _ := ready(t)
	r := fc.live()
	fc.editAPIService(v1, func(s *apiregistrationv1.APIService) { s.Finalizers = []string{"example.com/keeps"} })
	ctx, cancel := context.WithTimeout(t.Context(), 3*retireAllPause)
	defer cancel()
	err := r.RetireAll(ctx)
	if err == nil || !strings.Contains(err.Error(), "APIService v1.metrics.k8s.io still exists: something holds it with a finalizer") {
		t.Errorf("error %v", err)
	}
	var left apiregistrationv1.APIServiceList
	fc.list(&left)
	if len(left.Items) != 1 {
		t.Errorf("left: %v", left.Items)
	}
}
