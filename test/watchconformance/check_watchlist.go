// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watchList is what client-go's reflector asks for.
func watchList() url.Values {
	return params("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan", "allowWatchBookmarks", "true")
}

// initialEventsEnd: all objects, and then the annotated bookmark, once.
func initialEventsEnd(ctx context.Context, t *target) (string, error) {
	before, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	ctx, cancel := t.within(ctx)
	defer cancel()
	s, err := t.watch(ctx, watchList())
	if err != nil {
		return "", err
	}
	defer s.close()
	got := map[string]Object{}
	end, err := t.untilInitialEnd(ctx, s, func(e event) { got[e.Object.key()] = e.Object })
	if err != nil {
		return "", err
	}
	after, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	for key := range t.expected(before, after) {
		if _, ok := got[key]; !ok {
			return "", fmt.Errorf("the initial events end without %s", key)
		}
	}
	return fmt.Sprintf("after %d objects and %s", len(got), end.At.Sub(s.opened).Round(time.Millisecond)), nil
}

// untilInitialEnd reads up to the annotated bookmark.
func (t *target) untilInitialEnd(ctx context.Context, s *openWatch, added func(event)) (event, error) {
	var end event
	var wrong error
	err := s.each(ctx, func(e event) bool {
		switch {
		case e.Type == "ADDED":
			added(e)
			return false
		case e.endsInitial():
			end = e
			return true
		}
		wrong = fmt.Errorf("among the initial events is one of type %s: %.300s", e.Type, e.Raw)
		return true
	})
	switch {
	case wrong != nil:
		return end, wrong
	case errors.Is(err, context.DeadlineExceeded):
		return end, fmt.Errorf("no bookmark with the annotation %s within %s: informers hang", metav1.InitialEventsAnnotationKey, t.options.Patience)
	case err != nil:
		return end, ended(s, err)
	}
	return end, t.judgeBookmark(end)
}

func initialEventsEndOfNone(ctx context.Context, t *target) (string, error) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	query := watchList()
	maps.Copy(query, t.none())
	s, err := t.watch(ctx, query)
	if err != nil {
		return "", err
	}
	defer s.close()
	sent := 0
	end, err := t.untilInitialEnd(ctx, s, func(event) { sent++ })
	if err != nil {
		return "", err
	}
	if sent > 0 {
		return "", fmt.Errorf("%d objects of a selection of none", sent)
	}
	return fmt.Sprintf("after %s", end.At.Sub(s.opened).Round(time.Millisecond)), nil
}

// initialEventsWithoutBookmarks: the stock watch handler panics on an annotated
// bookmark for which nobody asked.
func initialEventsWithoutBookmarks(ctx context.Context, t *target) (string, error) {
	got, err := t.initial(ctx, "", params("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan"), nil)
	if err != nil {
		return "", err
	}
	query := params("sendInitialEvents", "true", "resourceVersionMatch", "NotOlderThan")
	maps.Copy(query, t.none())
	s, err := t.watch(ctx, query)
	if err != nil {
		return "", err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(ctx, t.options.shortTimeout())
	defer cancel()
	var bookmark *event
	err = s.each(ctx, func(e event) bool { bookmark = &e; return true })
	switch {
	case bookmark != nil:
		return "", fmt.Errorf("without allowWatchBookmarks comes %s: %.300s", bookmark.Type, bookmark.Raw)
	case !errors.Is(err, context.DeadlineExceeded):
		return "", ended(s, err)
	}
	return fmt.Sprintf("%d objects, and no bookmark", len(got)), nil
}

// watchListEndsWith504: reflectors list again after an error, and only then drop
// objects that are gone.
func watchListEndsWith504(ctx context.Context, t *target) (string, error) {
	isError := func(e event) bool { return e.Type == "ERROR" }
	events, s, err := t.untilLastEvent(ctx, watchList(), isError)
	if err != nil {
		return "", err
	}
	if len(events) == 0 || !isError(events[len(events)-1]) {
		return "", fmt.Errorf("%d events, and no ERROR before the close: reflectors watch on without a list", len(events))
	}
	last := events[len(events)-1]
	var status metav1.Status
	if err := json.Unmarshal(last.Raw, &status); err != nil || status.Kind != "Status" {
		return "", fmt.Errorf("the ERROR has no Status: %.300s", last.Raw)
	}
	if status.Code != http.StatusGatewayTimeout {
		return "", fmt.Errorf("the ERROR is %d %s, want 504: %s", status.Code, status.Reason, status.Message)
	}
	return fmt.Sprintf("%d %s after %s", status.Code, status.Reason, last.At.Sub(s.opened).Round(10*time.Millisecond)), nil
}
