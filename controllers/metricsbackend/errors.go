// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"fmt"
	"net"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// stalledError stops the following phases until something outside changes.
type stalledError struct{ reason, message string }

func (e *stalledError) Error() string { return e.message }

func newStalledError(reason, format string, args ...any) error {
	return &stalledError{reason: reason, message: fmt.Sprintf(format, args...)}
}

// errWait stops the following phases for now. The phase has set a condition that says
// why.
var errWait = errors.New("waiting")

// classifyError returns the stall that an error means, or nil, and whether the error is
// expected. All others are retried.
func classifyError(err error, namespace string) (stalled *stalledError, expected bool) {
	var notOwned *inventory.NotOwnedError
	var unusable *servingcert.UnusableError
	switch {
	case errors.Is(err, errWait):
		return nil, true
	case errors.As(err, &stalled):
		return stalled, true
	case errors.As(err, &unusable) && unusable.Transient:
		return nil, true
	case errors.As(err, &unusable):
		return &stalledError{unusable.Reason, unusable.Message}, true
	case errors.As(err, &notOwned):
		return &stalledError{v1alpha1.ReasonNotOwned, notOwned.Error()}, true
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &stalledError{v1alpha1.ReasonNamespaceTerminating, terminatingMessage(namespace)}, true
	case apierrors.IsForbidden(err):
		return &stalledError{v1alpha1.ReasonForbidden, "the operator lacks a permission, see config/rbac: " + err.Error()}, true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return &stalledError{
			v1alpha1.ReasonInvalid,
			"kube-apiserver refuses an object: correct the spec, or, if someone else changed the object, delete it and it is created again: " + err.Error(),
		}, true
	}
	return nil, false
}

// stableErrorMessage returns an error's message without details that differ between equal
// failures, such as local ports. A condition that changes with each attempt is written
// each time, and read by GitOps tools.
func stableErrorMessage(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return string(status.Status().Reason) + ": " + status.Status().Message
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Op + ": " + op.Err.Error()
	}
	if address, ok := errors.AsType[*url.Error](err); ok {
		return address.Err.Error()
	}
	return err.Error()
}

const (
	// maxMessage bounds messages of conditions, in bytes: they may contain text from
	// other programs.
	maxMessage = 4096
	// maxNote bounds notes of events, in bytes. kube-apiserver rejects more than 1024.
	maxNote = 1000
)
