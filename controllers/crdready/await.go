// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crdready waits for CRDs that may not be installed. A cache or controller of a
// missing kind would never start and block the operator, which must do its other work even
// if it is newer than its CRDs.
package crdready

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const interval = time.Minute

// Await waits until discovery has all kinds, and logs once why it waits. It returns false if ctx
// ends first.
func Await(ctx context.Context, c client.Client, clock clock.Clock, kinds ...client.Object) bool {
	logged := false
	for {
		err := findAll(c, kinds)
		if err == nil {
			return true
		}
		if ctx.Err() == nil && !logged {
			logged = true
			klog.FromContext(ctx).Error(err, "Cannot read a kind; install the CRDs of config/crd if they are missing. Trying each minute")
		}
		select {
		case <-ctx.Done():
			return false
		case <-clock.After(interval):
		}
	}
}

func findAll(c client.Client, kinds []client.Object) error {
	var errs []error
	for _, object := range kinds {
		_, err := c.IsObjectNamespaced(object)
		if meta.IsNoMatchError(err) {
			err = fmt.Errorf("the CRD of %T is not installed: %w", object, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
