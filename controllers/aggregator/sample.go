// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	requestTimeout = 10 * time.Second
	// samplePage and samplePages bound how many nodes are looked at. Serving
	// leaves out points older than maxAge, so the first page is usually enough.
	samplePage  = "50"
	samplePages = 20
)

// nodeMetricsPage is what all versions of a list of node metrics have in common.
type nodeMetricsPage struct {
	Metadata metav1.ListMeta `json:"metadata"`
	Items    []struct {
		Timestamp metav1.Time `json:"timestamp"`
	} `json:"items"`
}

// FreshNodeSample asks for node metrics of the version as any client would, and
// tells whether one of them is from after since.
func (c *Client) FreshNodeSample(ctx context.Context, version schema.GroupVersion, since time.Time) (bool, error) {
	token := ""
	for range samplePages {
		page, err := c.nodeMetrics(ctx, version, token)
		if err != nil {
			return false, err
		}
		for i := range page.Items {
			if page.Items[i].Timestamp.After(since) {
				return true, nil
			}
		}
		if token = page.Metadata.Continue; token == "" {
			break
		}
	}
	return false, nil
}

func (c *Client) nodeMetrics(ctx context.Context, version schema.GroupVersion, token string) (*nodeMetricsPage, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := "/apis/" + version.String() + "/nodes"
	request := c.rest.Get().AbsPath(path).Param("limit", samplePage).SetHeader("Accept", "application/json")
	if token != "" {
		request = request.Param("continue", token)
	}
	body, err := request.Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	var page nodeMetricsPage
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, fmt.Errorf("decode the answer of %s: %w", path, err)
	}
	return &page, nil
}
