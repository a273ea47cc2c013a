// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

func TestAPIError(t *testing.T) {
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "metrics"}, "hits")
	byQuotedKey := query.MetricQuery{QuotedKeys: []string{"a.b"}}
	_, selected := byQuotedKey.Values(nil, &query.Failure{Source: "main", Reason: query.ReasonRejected, Message: "parse error: a.b", Unparsable: true})
	selected = fmt.Errorf("metric x: %w", selected)
	tests := map[string]struct {
		err  error
		want metav1.Status
	}{
		"a source that does not answer": {
			fmt.Errorf("metric x: %w", &query.Failure{Source: "main", Reason: query.ReasonUnauthorized, Message: "401 Unauthorized"}),
			metav1.Status{Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: `metric x: source "main": Unauthorized: 401 Unauthorized`},
		},
		"a source that rejects the query": {
			&query.Failure{Source: "main", Reason: query.ReasonRejected, Message: "parse error"},
			metav1.Status{Code: 503, Reason: metav1.StatusReasonServiceUnavailable, Message: `source "main": Rejected: parse error`},
		},
		"a selector that the source cannot parse": {
			selected,
			metav1.Status{Code: 400, Reason: metav1.StatusReasonBadRequest, Message: `metric x: the source cannot parse a query by ["a.b"], as PromQL before Prometheus 3 has only labels of letters, digits and _: select by another key: source "main": Rejected: parse error: a.b`},
		},
		"an error of another implementation": {
			fmt.Errorf("metric x: %w", &query.EvaluationError{Failure: &query.Failure{Source: "keda", Reason: query.ReasonServerError, Message: "HTTP 500: no scaler", Status: &metav1.Status{Code: 500, Reason: "Scaler", Message: "no scaler"}}}),
			metav1.Status{Code: 500, Reason: "Scaler", Message: "no scaler"},
		},
		"an error of the API": {missing, missing.ErrStatus},
		"one that is wrapped": {
			fmt.Errorf("select pods: %w", missing),
			metav1.Status{Code: 404, Reason: metav1.StatusReasonNotFound, Message: "select pods: " + missing.Error()},
		},
		"a request that ended": {
			fmt.Errorf("ask: %w", context.DeadlineExceeded),
			metav1.Status{Code: 504, Reason: metav1.StatusReasonTimeout, Message: "Timeout: ask: context deadline exceeded"},
		},
		"anything else": {
			errors.New("nil map"),
			metav1.Status{Code: 500, Reason: metav1.StatusReasonInternalError, Message: "Internal error occurred: nil map"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := apiError(tc.err)
			// Not errors.As: the API server does not look into what is wrapped, either.
			status, ok := got.(apierrors.APIStatus)
			if !ok {
				t.Fatalf("a %T", got)
			}
			if s, delay := apierrors.SuggestsClientDelay(got); delay {
				t.Errorf("client-go is told to ask again after %d s by itself", s)
			}
			s := status.Status()
			if diff := cmp.Diff(tc.want, metav1.Status{Code: s.Code, Reason: s.Reason, Message: s.Message, Status: tc.want.Status, Details: tc.want.Details}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if err := apiError(nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}
