// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// discover chooses the first version that discovery has, and learns whether it can be watched.
func (w *Watcher[T]) discover(ctx context.Context) error {
	var errs []error
	for _, version := range w.api.versions {
		found, err := w.serverResources(ctx, version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			// The pods of this version may be away, or hang: a later version that answers is better than none.
			errs = append(errs, fmt.Errorf("asking which resources %s/%s has: %w", w.api.group, version, err))
			continue
		}
		for _, resource := range found.APIResources {
			if resource.Name == w.api.resource {
				w.setVersion(version, slices.Contains(resource.Verbs, "watch"))
				return nil
			}
		}
		if w.api.maybeUndiscovered {
			w.setVersion(version, mayBeWatchable(found.APIResources))
			return nil
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return fmt.Errorf("%w: %s in none of %s %s; is an implementation of it installed?",
		ErrNotServed, w.api.resource, w.api.group, strings.Join(w.api.versions, ", "))
}

// serverResources has a timeout per version, so that one that hangs leaves time for the others.
func (w *Watcher[T]) serverResources(ctx context.Context, version string) (metav1.APIResourceList, error) {
	ctx, cancel := context.WithTimeout(ctx, w.options.RequestTimeout/3)
	defer cancel()
	var found metav1.APIResourceList
	err := w.get("/apis/" + w.api.group + "/" + version).Do(ctx).Into(&found)
	return found, err
}

// mayBeWatchable reports whether a metric that discovery does not list may be watched: a server has the same verbs for
// all its metrics. If it lists none, only a watch can tell.
func mayBeWatchable(others []metav1.APIResource) bool {
	return len(others) == 0 || slices.ContainsFunc(others, func(r metav1.APIResource) bool {
		return slices.Contains(r.Verbs, "watch")
	})
}

// setVersion applies a result of discovery.
func (w *Watcher[T]) setVersion(version string, watchable bool) {
	if version != w.lastVersion || watchable && !w.watchable {
		// The server or its settings have changed: a watch that was rejected may be accepted now.
		w.watchAt, w.watchPausedUntil, w.failingSince = time.Time{}, time.Time{}, time.Time{}
		w.watchErr, w.listNeeded = nil, true
	}
	w.version, w.lastVersion, w.watchable = version, version, watchable
	w.watchListPath = false // the server may be another one by now
}
