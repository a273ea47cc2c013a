// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// explain adds what a user can do.
func (o *options) explain(err error) error {
	what := "pods"
	if o.nodes {
		what = "nodes"
	}
	switch {
	case errors.Is(err, client.ErrNotServed):
		return fmt.Errorf("%w (apply a MetricsBackend, or install another implementation such as metrics-server; "+
			"`kubectl metrics status` shows what is registered)", err)
	case apierrors.IsForbidden(err):
		where := ""
		if !o.nodes && o.namespace != "" {
			where = " in namespace " + o.namespace
		}
		return fmt.Errorf("%w (you need the permission to list and watch %s.metrics.k8s.io%s; the role view has it)", err, what, where)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w (your credentials are not accepted: renew them, or choose another --context)", err)
	case apierrors.IsServiceUnavailable(err):
		return fmt.Errorf("%w (the API is registered, and what serves it does not answer; `kubectl metrics status` shows more)", err)
	}
	return err
}
