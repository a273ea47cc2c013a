// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// The kinds of failures of a watch.
const (
	crdMissing  = "CRDMissing"
	forbidden   = "Forbidden"
	undecodable = "Undecodable"
	unavailable = "Unavailable"
)

// followed is the state of an informer of objects that may be missing, with their
// CRD, or unreadable: client-go's reflector tries again, with its backoff, and the
// log tells each kind of failure once.
type followed struct {
	// what is followed, for the log, and resource with its group, for hints.
	what, resource string
	// handled is the handler's, once it was added.
	handled atomic.Pointer[cache.InformerSynced]
	// told is the last kind of failure that was logged.
	told atomic.Pointer[string]
}

// seen is called with each object: whatever failed before does no longer.
func (f *followed) seen() { f.told.Store(nil) }

// read returns nil once it is known what there is: the objects, or that there are
// none since there is no CRD. Otherwise it says why it is not known.
func (f *followed) read() error {
	if handled := f.handled.Load(); handled != nil && (*handled)() {
		return nil
	}
	switch kind := f.told.Load(); {
	case kind == nil:
		return errors.New("no answer from kube-apiserver yet")
	case *kind == crdMissing:
		return nil
	default:
		return errors.New(*kind)
	}
}

// failed is the informer's error handler.
func (f *followed) failed(ctx context.Context, r *cache.Reflector, err error) {
	kind, hint := f.failure(err)
	if kind == "" {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		return
	}
	logger := klog.FromContext(ctx)
	if before := f.told.Swap(&kind); before != nil && *before == kind {
		logger.V(4).Info("Still cannot watch "+f.what, "err", err)
		return
	}
	logger.Info("Cannot watch "+f.what+"; what is in force stays, and it is tried again", "reason", kind, "hint", hint, "err", err)
}

// failure classifies a failure; the kind is empty where client-go's own handling
// fits.
func (f *followed) failure(err error) (kind, hint string) {
	switch {
	case apierrors.IsNotFound(err):
		return crdMissing, "install the CustomResourceDefinition " + f.resource
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return forbidden, "this account needs get, list and watch on " + f.resource
	case runtime.IsNotRegisteredError(err), runtime.IsMissingKind(err), runtime.IsStrictDecodingError(err):
		return undecodable, "the object does not fit this version of serving"
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return "", ""
	}
	return unavailable, "kube-apiserver cannot be reached, or its answer cannot be read"
}
