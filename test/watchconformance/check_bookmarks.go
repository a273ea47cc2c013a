// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"
)

// none selects nothing, for watches in which bookmarks are all that comes.
func (t *target) none() url.Values {
	if !t.resource.Metadata {
		return url.Values{}
	}
	return params("fieldSelector", "metadata.name=no-such-object-of-watchconformance")
}

// bookmarkInterval: a bookmark at least each interval, where nothing else comes.
func bookmarkInterval(ctx context.Context, t *target) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.options.BookmarkInterval+t.options.Patience)
	defer cancel()
	query := t.none()
	query.Set("allowWatchBookmarks", "true")
	s, err := t.watch(ctx, query)
	if err != nil {
		return "", err
	}
	defer s.close()
	err = s.each(ctx, event.isHeartbeat)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "", fmt.Errorf("no bookmark within %s, on a watch on which nothing else came", t.options.BookmarkInterval+t.options.Patience)
	case err != nil:
		return "", ended(s, err)
	}
	return fmt.Sprintf("the first after %s", time.Since(s.opened).Round(100*time.Millisecond)), nil
}

// untilClose reads a watch with a short timeout to its end.
func (t *target) untilClose(ctx context.Context, query url.Values) ([]event, *openWatch, error) {
	timeout := t.options.shortTimeout()
	ctx, cancel := context.WithTimeout(ctx, timeout+t.options.Patience)
	defer cancel()
	query.Set("timeoutSeconds", seconds(timeout))
	s, err := t.watch(ctx, query)
	if err != nil {
		return nil, nil, err
	}
	defer s.close()
	var events []event
	err = s.each(ctx, func(e event) bool { events = append(events, e); return false })
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return events, s, fmt.Errorf("the watch goes on %s after timeoutSeconds=%s", t.options.Patience, seconds(timeout))
	case !errors.Is(err, io.EOF):
		return events, s, ended(s, err)
	}
	return events, s, nil
}

// untilLastEvent is untilClose for a watch whose last event is due shortly before the
// close. If that is missing, as from a server on a busy machine, it watches once more.
func (t *target) untilLastEvent(ctx context.Context, query url.Values, isLast func(event) bool) ([]event, *openWatch, error) {
	events, s, err := t.untilClose(ctx, query)
	if err != nil || len(events) > 0 && isLast(events[len(events)-1]) {
		return events, s, err
	}
	return t.untilClose(ctx, query)
}

func bookmarksOnlyWhenAsked(ctx context.Context, t *target) (string, error) {
	for _, query := range []url.Values{{}, params("allowWatchBookmarks", "false")} {
		events, _, err := t.untilClose(ctx, query)
		if err != nil {
			return "", err
		}
		for _, e := range events {
			if e.Type == "BOOKMARK" {
				return "", fmt.Errorf("a bookmark without allowWatchBookmarks: %.300s", e.Raw)
			}
		}
	}
	return "none on two watches to their close", nil
}

func bookmarkBeforeClose(ctx context.Context, t *target) (string, error) {
	query := t.none()
	query.Set("allowWatchBookmarks", "true")
	events, s, err := t.untilLastEvent(ctx, query, event.isHeartbeat)
	if err != nil {
		return "", err
	}
	closed := time.Now()
	for _, e := range events {
		if e.Type == "ERROR" {
			return "", fmt.Errorf("an ERROR ends a watch that did not ask for sendInitialEvents: %.300s", e.Raw)
		}
	}
	if len(events) == 0 || !events[len(events)-1].isHeartbeat() {
		return "", fmt.Errorf("%d events, and no bookmark before the close after %s", len(events), t.options.shortTimeout())
	}
	last := events[len(events)-1].At
	before := closed.Sub(last)
	// A close that is late, on a busy machine, makes no bookmark early.
	if timeout := t.options.shortTimeout(); before > timeout*3/4 && last.Sub(s.opened) < timeout/4 {
		return "", fmt.Errorf("the last bookmark came %s before the close", before.Round(10*time.Millisecond))
	}
	return fmt.Sprintf("%s before the close", before.Round(10*time.Millisecond)), nil
}

// bookmarkObject: an object of the watch's kind with nothing but a resourceVersion.
func bookmarkObject(ctx context.Context, t *target) (string, error) {
	query := t.none()
	query.Set("allowWatchBookmarks", "true")
	events, _, err := t.untilLastEvent(ctx, query, event.isHeartbeat)
	if err != nil {
		return "", err
	}
	for _, e := range events {
		if e.isHeartbeat() {
			return fmt.Sprintf("resourceVersion %s", e.Object.ResourceVersion), t.judgeBookmark(e)
		}
	}
	return "", unseen("no bookmark came")
}

func (t *target) judgeBookmark(e event) error {
	o := e.Object
	if o.Kind != t.resource.Kind || o.APIVersion != t.api.Group+"/"+t.version {
		return fmt.Errorf("the bookmark's object is %s of %s, want %s of %s/%s", o.Kind, o.APIVersion, t.resource.Kind, t.api.Group, t.version)
	}
	if o.ResourceVersion == "" {
		return fmt.Errorf("the bookmark has no resourceVersion: %.300s", e.Raw)
	}
	var content struct {
		Metadata map[string]any `json:"metadata"`
	}
	if err := json.Unmarshal(e.Raw, &content); err != nil {
		return err
	}
	for _, field := range []string{"resourceVersion", "annotations", "creationTimestamp"} {
		delete(content.Metadata, field)
	}
	if len(content.Metadata) > 0 || o.Sample != "" {
		return fmt.Errorf("the bookmark has more than a resourceVersion: %.300s", e.Raw)
	}
	return nil
}
