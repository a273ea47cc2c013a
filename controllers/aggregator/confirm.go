// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Lagging asks every kube-apiserver by itself for the APIService name, from its
// own watch cache (resourceVersion=0), which is what its aggregator follows.
// follows tells whether what it has is what was written. lagging are the addresses
// of those that still have something else, or nothing; unreachable those that
// could not be asked. Both are in order. It fails when the addresses of the
// kube-apiservers cannot be read.
//
// Once none lags, aggregators act on it within milliseconds, but a single worker
// in each takes all APIServices in turn: a caller allows for that.
func (c *Client) Lagging(ctx context.Context, name string, follows func(*apiregistrationv1.APIService) bool) (lagging, unreachable []string, err error) {
	addresses, err := c.addresses(ctx)
	if err != nil {
		return nil, nil, err
	}
	found := make([]*apiregistrationv1.APIService, len(addresses))
	errs := make([]error, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() { found[i], errs[i] = c.cached(ctx, address, name) })
	}
	asked.Wait()
	for i, address := range addresses {
		switch {
		case errs[i] != nil:
			klog.FromContext(ctx).V(1).Info("Cannot ask a kube-apiserver for an APIService",
				"address", address, "apiService", name, "err", errs[i])
			unreachable = append(unreachable, address)
		case found[i] == nil || !follows(found[i]):
			lagging = append(lagging, address)
		}
	}
	return lagging, unreachable, nil
}

// cached is the APIService as one kube-apiserver has it in its watch cache; nil
// when there is none.
func (c *Client) cached(ctx context.Context, address, name string) (*apiregistrationv1.APIService, error) {
	path := "/apis/" + apiregistrationv1.SchemeGroupVersion.String() + "/apiservices/" + name + "?resourceVersion=0"
	got, err := c.ask(ctx, address, path, runtime.ContentTypeJSON)
	switch {
	case err != nil:
		return nil, err
	case got.code == http.StatusNotFound:
		return nil, nil
	case got.code != http.StatusOK:
		return nil, fmt.Errorf("GET %s answered %d %s", path, got.code, http.StatusText(got.code))
	}
	service := &apiregistrationv1.APIService{}
	if err := json.Unmarshal(got.body, service); err != nil {
		return nil, fmt.Errorf("decode the answer to GET %s: %w", path, err)
	}
	if service.Name != name {
		return nil, fmt.Errorf("GET %s answered with APIService %q", path, service.Name)
	}
	return service, nil
}
