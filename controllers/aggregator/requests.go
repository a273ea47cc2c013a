// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// samplePage and samplePages bound how many nodes are read. Serving leaves out
	// points older than maxAge, so the first page is usually enough.
	samplePage  = "50"
	samplePages = 20
)

// Discovers returns an error unless discovery of the version answers through
// kube-apiserver, which proxies that request to the server of the version. An empty list
// of resources is fine: custom and external metrics list the metrics that exist.
func (c *Client) Discovers(ctx context.Context, version schema.GroupVersion) error {
	var resources struct {
		GroupVersion string `json:"groupVersion"`
	}
	path := "/apis/" + version.String()
	if err := c.Get(ctx, path, nil, &resources); err != nil {
		return err
	}
	if resources.GroupVersion != version.String() {
		return fmt.Errorf("GET %s: the answer is discovery of %.100q", path, resources.GroupVersion)
	}
	return nil
}

// FreshNodeSample reports whether node metrics of the version, requested through
// kube-apiserver, have a sample from after since.
func (c *Client) FreshNodeSample(ctx context.Context, version schema.GroupVersion, since time.Time) (bool, error) {
	params := url.Values{"limit": {samplePage}}
	for range samplePages {
		// The fields that all versions of the list have in common.
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []struct {
				Timestamp metav1.Time `json:"timestamp"`
			} `json:"items"`
		}
		if err := c.Get(ctx, "/apis/"+version.String()+"/nodes", params, &page); err != nil {
			return false, err
		}
		for i := range page.Items {
			if page.Items[i].Timestamp.After(since) {
				return true, nil
			}
		}
		if page.Metadata.Continue == "" {
			break
		}
		params.Set("continue", page.Metadata.Continue)
	}
	return false, nil
}

// Get sends a request through kube-apiserver as any client would, and decodes the response.
func (c *Client) Get(ctx context.Context, path string, params url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := c.rest.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON)
	for name := range params {
		request = request.Param(name, params.Get(name))
	}
	result := request.Do(ctx)
	// Raw's error lacks the message of the status that was sent.
	if err := result.Error(); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	body, err := result.Raw()
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode the answer of %s: %w", path, err)
	}
	return nil
}

// Answers requests path from every kube-apiserver at its own address, since each one
// proxies requests over a network path of its own. It returns the error of the first
// that does not answer 200, an APIStatus if that one answered. Those that cannot be
// connected to do not count; if none can be, the request goes through their Service.
func (c *Client) Answers(ctx context.Context, path string) error {
	var asked int
	var failed error
	read := func(ctx context.Context, address string) (answer, error) {
		got, err := c.get(ctx, address, path, runtime.ContentTypeJSON)
		var unconnected connectError
		switch {
		case errors.As(err, &unconnected):
			return answer{}, err
		case err != nil:
			// It is reached, and waits for the pods.
			return answer{err}, nil //nolint:nilerr // it is the answer
		case got.code != http.StatusOK:
			return answer{got.statusError()}, nil
		}
		return answer{}, nil
	}
	_, err := getEach(ctx, c, read, func(_ string, got answer) {
		asked++
		if failed == nil && got.failed != nil {
			failed = fmt.Errorf("GET %s: %w", path, got.failed)
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

// answer is that of a kube-apiserver that was connected to; failed is nil if it is 200.
type answer struct{ failed error }

// statusError returns the error that a response stands for: the Status in its body, or
// one made from its code.
func (r *response) statusError() *apierrors.StatusError {
	var status metav1.Status
	if json.Unmarshal(r.body, &status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	const maxText = 200
	message := fmt.Sprintf("%d %s: %s", r.code, http.StatusText(r.code), text.Truncate(string(r.body), maxText))
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(r.code), Message: message}} //nolint:gosec // three digits
}
