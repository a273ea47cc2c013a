// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// apiError returns the API status of an error. A failing source is a 503, whatever its own status
// was: its 404 or 403 does not concern this client. The source's text is kept. There is no
// Retry-After, since client-go would retry ten times before an autoscaler saw the error.
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
