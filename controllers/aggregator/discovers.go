// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Discovers asks for the discovery of a version as any client would: kube-apiserver
// hands that request on to what serves the version. An empty list of resources is an
// answer: custom and external metrics list what exists at the moment.
func (c *Client) Discovers(ctx context.Context, version schema.GroupVersion) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := "/apis/" + version.String()
	body, err := c.rest.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	var resources struct {
		GroupVersion string `json:"groupVersion"`
	}
	if err := json.Unmarshal(body, &resources); err != nil {
		return fmt.Errorf("decode the answer of %s: %w", path, err)
	}
	if resources.GroupVersion != version.String() {
		return fmt.Errorf("GET %s: the answer is discovery of %.100q", path, resources.GroupVersion)
	}
	return nil
}
