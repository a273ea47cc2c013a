// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statusError turns a metav1.Status into an error, and something else into an error that says so.
func statusError(body []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		return fmt.Errorf("the server sent an error that is no Status: %w", err)
	}
	if status.Code == 0 && status.Message == "" && status.Reason == "" {
		return errors.New("the server sent an error that says nothing")
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// isRefusal tells answers to a watch that asking again soon does not change.
func isRefusal(err error) bool {
	if errors.Is(err, errPlainList) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	}
	return false
}

// startsOver tells the errors after which objects may be missing that a new watch would not tell of.
func startsOver(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || hasCode(err, http.StatusGatewayTimeout)
}

func hasCode(err error, code int32) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == code
}

// retryAfter is what the server asked for, or 0.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(max(seconds, 0)) * time.Second
}
