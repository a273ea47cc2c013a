// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// pollingUnaffected: what get and list answer while a watch is open is what they
// answer without one.
func pollingUnaffected(ctx context.Context, t *target) (string, error) {
	before, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	if len(before.objects) == 0 {
		return "", unseen("there are no %s", t.resource.Name)
	}
	s, err := t.watch(ctx, nil)
	if err != nil {
		return "", err
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer s.cancel()
	reading.Go(func() { _ = s.each(ctx, func(event) bool { return false }) })
	during, err := t.list(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("while a watch is open: %w", err)
	}
	if len(during.objects) == 0 {
		return "", fmt.Errorf("while a watch is open the list is empty, before it had %d objects", len(before.objects))
	}
	observed := during.objects
	got, requested, err := t.oneOf(ctx, during.objects)
	switch {
	case err != nil:
		return "", fmt.Errorf("while a watch is open: %w", err)
	case requested:
		observed = append(observed, got)
	}
	was := lasting(before, before)
	for _, o := range observed {
		b, ok := was[o.key()]
		if !ok || o.ResourceVersion == "" || b.identity() != o.identity() {
			continue
		}
		if !o.Timestamp.Equal(b.Timestamp) || (o.Window == b.Window && o.Sample != b.Sample) {
			return "", fmt.Errorf("while a watch is open the data point %s of %s is %s, and was %s", o.ResourceVersion, o.key(), o.Sample, b.Sample)
		}
	}
	return fmt.Sprintf("%d objects before, %d during a watch", len(before.objects), len(during.objects)), nil
}

// oneOf asks for the first of some objects that is still there: they may go any time,
// and another replica may not have a new one yet.
func (t *target) oneOf(ctx context.Context, objects []Object) (got Object, requested bool, err error) {
	for _, o := range objects[:min(len(objects), 5)] {
		got, requested, err = t.one(ctx, o)
		var refused *refusal
		if !errors.As(err, &refused) || refused.code != http.StatusNotFound {
			return got, requested, err
		}
	}
	return got, requested, err
}

// one asks for one object, where that can be asked for.
func (t *target) one(ctx context.Context, o Object) (got Object, requested bool, err error) {
	path := t.path(o.Namespace) + "/" + o.Name
	if t.resource.ObjectPath != nil {
		if path = t.resource.ObjectPath(t.version, o); path == "" {
			return got, false, nil
		}
	}
	body, err := t.connection.get(ctx, path, nil)
	if err != nil {
		return got, false, fmt.Errorf("get %s: %w", path, err)
	}
	if t.resource.ObjectPath != nil {
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(body, &list); err != nil || len(list.Items) != 1 {
			return got, false, fmt.Errorf("get %s: want a list of one object, got %.300s", path, body)
		}
		body = list.Items[0]
	}
	if got, err = t.resource.Identify(body); err != nil {
		return got, false, err
	}
	t.ledger.note(t.resource.Name, got)
	if got.key() != o.key() {
		return got, false, fmt.Errorf("get %s is of %s", path, got.key())
	}
	return got, true, nil
}

// connections is how many new ones a comparison of resourceVersions makes: each may
// reach another replica.
const connections = 6

// resourceVersionIdentifies: the same data point has the same resourceVersion on
// each replay, in each version and encoding and on each replica; no other has it.
func resourceVersionIdentifies(ctx context.Context, t *target) (string, error) {
	if _, err := t.recorded(ctx); err != nil {
		return "", err
	}
	for range connections {
		own, err := newOwnConnection(t.config)
		if err != nil {
			return "", err
		}
		c := *t
		c.connection = own
		got, err := c.initial(ctx, "", nil, nil)
		own.client.CloseIdleConnections()
		if err != nil {
			return "", err
		}
		t.ledger.note(t.resource.Name, got...)
	}
	points, err := t.ledger.judge(t.resource.Name)
	if err != nil {
		return "", err
	}
	if points == 0 {
		return "", unseen("no object has a resourceVersion")
	}
	return fmt.Sprintf("%d data points, over all that was read", points), nil
}
