// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crdready waits for kinds whose CRDs may be missing. A cache or controller of
// such a kind would never start, and the operator with it: one that is newer than
// its CRDs does everything else meanwhile.
package crdready

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// interval is between two looks for CRDs that are not installed.
const interval = time.Minute

// Await waits until all of the kinds can be read from informers; false when ctx
// ended. It tells once why it waits.
func Await(ctx context.Context, informers cache.Informers, clock clock.Clock, kinds ...client.Object) bool {
	told := false
	for {
		err := find(ctx, informers, kinds)
		if err == nil {
			return true
		}
		if ctx.Err() == nil && !told {
			told = true
			klog.FromContext(ctx).Error(err, "Cannot read a kind; install the CRDs of config/crd if they are missing. Trying each minute")
		}
		select {
		case <-ctx.Done():
			return false
		case <-clock.After(interval):
		}
	}
}

func find(ctx context.Context, informers cache.Informers, kinds []client.Object) error {
	var errs []error
	for _, object := range kinds {
		_, err := informers.GetInformer(ctx, object)
		if meta.IsNoMatchError(err) {
			err = fmt.Errorf("the CRD of %T is not installed: %w", object, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
