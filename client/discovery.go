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

// ErrNotServed means that discovery answered, and names the resource in no version that is known here.
var ErrNotServed = errors.New("the API server does not serve it")

// negotiate picks the first version that discovery serves, and learns whether it can be watched.
func (w *Watcher[T]) negotiate(ctx context.Context) error {
	var errs []error
	for _, version := range w.api.versions {
		found, err := w.discover(ctx, version)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			// It may be a version whose pods are away, or hang: a later one that answers is better than none.
			errs = append(errs, fmt.Errorf("asking which resources %s/%s has: %w", w.api.group, version, err))
			continue
		}
		for _, resource := range found.APIResources {
			if resource.Name == w.api.resource {
				w.agree(version, slices.Contains(resource.Verbs, "watch"))
				return nil
			}
		}
		if w.api.unnamed {
			w.agree(version, mayBeWatched(found.APIResources))
			return nil
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return fmt.Errorf("%w: %s in none of %s %s; is an implementation of it installed?",
		ErrNotServed, w.api.resource, w.api.group, strings.Join(w.api.versions, ", "))
}

// discover has a time of its own for each version: one that hangs must not use up that of the others.
func (w *Watcher[T]) discover(ctx context.Context, version string) (metav1.APIResourceList, error) {
	ctx, cancel := context.WithTimeout(ctx, w.options.RequestTimeout/3)
	defer cancel()
	var found metav1.APIResourceList
	err := w.request("/apis/" + w.api.group + "/" + version).Do(ctx).Into(&found)
	return found, err
}

// mayBeWatched goes by the other resources of a server: all are alike. Where there are none, only a try can tell.
func mayBeWatched(others []metav1.APIResource) bool {
	return len(others) == 0 || slices.ContainsFunc(others, func(r metav1.APIResource) bool {
		return slices.Contains(r.Verbs, "watch")
	})
}

// agree takes an answer of discovery.
func (w *Watcher[T]) agree(version string, served bool) {
	if version != w.agreed || served && !w.served {
		// Another server, or a setting changed: what was refused before may be given now.
		w.watchAt, w.refusedUntil, w.troubleSince = time.Time{}, time.Time{}, time.Time{}
		w.trouble, w.listNeeded = nil, true
	}
	w.version, w.agreed, w.served = version, version, served
	w.plainWatch = false // the server may be another by now
}
