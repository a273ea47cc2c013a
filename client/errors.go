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

// ErrNotServed means that discovery succeeded, but no known version has the resource.
var ErrNotServed = errors.New("the API server does not serve it")

var (
	errInUse = errors.New("this Watcher is running, or has run: create a new one")
	// errStale ends a stream that is open but lacks data points which lists have.
	errStale = errors.New("lists have new data points that the watch does not bring")
	// errSilent ends a stream whose connection may be dead.
	errSilent = errors.New("the watch fell silent")
	// errNoData is the PollingReason beside a watch that has not failed.
	errNoData = errors.New("the watch brings no data points")
	// errClosedEarly replaces io.EOF in what users see.
	errClosedEarly = errors.New("the server closed the watch soon after it began")
	// errPlainList ends a watch whose response was a list. The list has been applied.
	errPlainList = errors.New("the server answered the watch with a plain list")
)

// statusError decodes a metav1.Status as an error. If body is none, the error says so.
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

// isWatchRejected reports whether another watch would soon fail in the same way.
func isWatchRejected(err error) bool {
	switch codeOf(err) {
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	}
	return errors.Is(err, errPlainList)
}

// needsRelist reports whether objects may have changed of which a new watch would send no event.
func needsRelist(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || codeOf(err) == http.StatusGatewayTimeout
}

// codeOf returns the HTTP status of the server's error, or 0.
func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// retryAfter returns the delay that the server asked for, or 0.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(max(seconds, 0)) * time.Second
}
