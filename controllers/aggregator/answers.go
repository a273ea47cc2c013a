// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// Answers requests path from every kube-apiserver at its own address, since each one
// proxies requests over a network path of its own. It returns the error of the first
// that does not answer 200, an APIStatus if that one answered. Those that cannot be
// connected to do not count; if none can be, the request goes through their Service.
func (c *Client) Answers(ctx context.Context, path string) error {
	var asked int
	var failed error
	// An error of a kube-apiserver that was connected to is its answer: it waits for the pods, too.
	read := func(ctx context.Context, address string) (answer, unconnected error) {
		_, err := c.get(ctx, address, path, runtime.ContentTypeJSON)
		if _, ok := errors.AsType[connectError](err); ok {
			return nil, err
		}
		return err, nil
	}
	_, err := getEach(ctx, c, read, func(_ string, answer error) {
		asked++
		if failed == nil && answer != nil {
			failed = fmt.Errorf("GET %s: %w", path, answer)
		}
	})
	if err == nil && asked > 0 {
		return failed
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := c.rest.Get().AbsPath(path).Do(ctx).Error(); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// statusError returns the error that a response stands for: the Status in its body, or
// one made from its code.
func statusError(code int, body []byte) *apierrors.StatusError {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	const maxText = 200
	message := fmt.Sprintf("%d %s: %s", code, http.StatusText(code), text.Truncate(string(body), maxText))
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: message}} //nolint:gosec // three digits
}
