// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// apiError is what a client is told of an error. A source that does not answer is
// 503, whatever it answered itself: its 404 is not ours, and its 403 is not about
// this client. The text is kept, since it is in the source's own words. There is no
// Retry-After: client-go would ask again ten times before the one who asked, such as an
// autoscaler, heard of it.
func apiError(err error) error {
	var status apierrors.APIStatus
	var failure *query.Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status):
		// What is around it the API server does not look into.
		told := status.Status()
		told.Message = err.Error()
		return &apierrors.StatusError{ErrStatus: told}
	case errors.As(err, &failure):
		return apierrors.NewServiceUnavailable(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return apierrors.NewTimeoutError(err.Error(), 0)
	}
	return apierrors.NewInternalError(err)
}
