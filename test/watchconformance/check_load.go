// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// idleClients is how many clients do not read in the check of slow clients.
const idleClients = 4

// slowClients: clients that read nothing do not hold up one that does.
func slowClients(ctx context.Context, t *target) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*t.options.PointInterval+t.options.Patience)
	defer cancel()
	for range idleClients {
		idle, err := newIdleConnection(t.config)
		if err != nil {
			return "", err
		}
		defer idle.client.CloseIdleConnections()
		response, err := idle.open(ctx, http.MethodGet, t.watchPath(""), t.watchQuery(nil), acceptJSON)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
	}
	before, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	s, err := t.watch(ctx, nil)
	if err != nil {
		return "", err
	}
	defer s.close()
	after, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	initial, err := t.expectInitial(ctx, s, t.expected(before, after))
	if err != nil {
		return "", fmt.Errorf("beside %d clients that read nothing: %w", idleClients, err)
	}
	// Each interval renews what there is: after two of them something was sent in
	// each, unless the stream stands still.
	count, last := 0, time.Now()
	pause := time.Duration(0)
	enough, stop := context.WithTimeout(ctx, 2*t.options.PointInterval)
	defer stop()
	err = s.each(enough, func(e event) bool {
		pause, last = max(pause, e.At.Sub(last)), e.At
		count++
		return false
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		return "", ended(s, err)
	}
	pause = max(pause, time.Since(last))
	switch {
	case count == 0 && t.stands(ctx, initial):
		return "", unseen("lists show no new data point for %s either", 2*t.options.PointInterval)
	case count == 0:
		return "", fmt.Errorf("beside %d clients that read nothing no new data point was sent for %s", idleClients, 2*t.options.PointInterval)
	case pause > t.options.PointInterval+t.options.Patience:
		return "", fmt.Errorf("beside %d clients that read nothing the stream stood still for %s", idleClients, pause.Round(time.Millisecond))
	}
	return fmt.Sprintf("%d data points beside %d clients that read nothing", count, idleClients), nil
}

// stands says that no object has another data point than it had.
func (t *target) stands(ctx context.Context, had []Object) bool {
	now, err := t.list(ctx, nil)
	if err != nil {
		return false
	}
	identities := map[string]bool{}
	for _, o := range had {
		identities[o.key()+o.identity()] = true
	}
	for _, o := range now.objects {
		if !identities[o.key()+o.identity()] {
			return false
		}
	}
	return true
}

// manyWatches: all are admitted and are sent their first data point within what
// KEP-1013 gives 95 of 100; those that are too many get 429 with Retry-After.
func manyWatches(ctx context.Context, t *target) (string, error) {
	all, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	if len(all.objects) == 0 {
		return "", unseen("there are no %s", t.resource.Name)
	}
	ctx, cancel := t.within(ctx)
	defer cancel()
	// The server may still count what another check has closed.
	if err := t.untilAdmitted(ctx); err != nil {
		return "", fmt.Errorf("the first watch: %w", err)
	}
	var mu sync.Mutex
	var opening sync.WaitGroup
	opened, limited := 0, 0
	var worst time.Duration
	var wrong error
	// Those that have what they want stay open, or they might come one after the other.
	var open []*openWatch
	defer func() {
		for _, s := range open {
			s.close()
		}
	}()
	for range t.options.Watches {
		opening.Go(func() {
			began := time.Now()
			s, err := t.first(ctx, url.Values{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				opened++
				open = append(open, s)
				worst = max(worst, time.Since(began))
			case isLimit(err):
				limited++
			default:
				wrong = err
			}
		})
	}
	opening.Wait()
	switch {
	case wrong != nil:
		return "", fmt.Errorf("%d of %d watches at once had a data point, one did not: %w", opened, t.options.Watches, wrong)
	case opened == 0:
		return "", fmt.Errorf("each of %d watches was refused with 429", t.options.Watches)
	case limited > 0:
		return fmt.Sprintf("%d of %d, and 429 with Retry-After for the others", opened, t.options.Watches), nil
	}
	return fmt.Sprintf("%d, the last data point after %s", opened, worst.Round(time.Millisecond)), nil
}

// first opens a watch and waits for its first data point.
func (t *target) first(ctx context.Context, query url.Values) (*openWatch, error) {
	s, err := t.watch(ctx, query)
	if err != nil {
		return nil, err
	}
	err = s.each(ctx, func(e event) bool { return e.Type == "ADDED" })
	if err == nil {
		return s, nil
	}
	s.close()
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no data point within %s", t.options.Patience)
	}
	if errors.Is(err, io.EOF) {
		return nil, ended(s, err)
	}
	return nil, err
}

// isLimit says that a request was refused as one too many, and when to come back.
func isLimit(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == http.StatusTooManyRequests && r.header.Get("Retry-After") != ""
}

// rounds is how often a watch is opened and closed in a row.
const rounds = 20

func openAndClose(ctx context.Context, t *target) (string, error) {
	began := time.Now()
	for i := range rounds {
		ctx, cancel := t.within(ctx)
		defer cancel()
		s, err := t.first(ctx, url.Values{})
		if err != nil {
			return "", fmt.Errorf("opened for the %d. time in a row: %w", i+1, err)
		}
		s.close()
	}
	return fmt.Sprintf("%d times in a row in %s", rounds, time.Since(began).Round(time.Millisecond)), nil
}

func limiting(o *Options) (string, bool) { return "-limit", o.Limit > 0 }

// limit429: one more than the limit is 429 with Retry-After, and there is room
// again when one has ended.
func limit429(ctx context.Context, t *target) (string, error) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	if err := t.untilAdmitted(ctx); err != nil {
		return "", fmt.Errorf("the first watch: %w", err)
	}
	var open []*openWatch
	defer func() {
		for _, s := range open {
			s.close()
		}
	}()
	for len(open) <= t.options.Limit {
		s, err := t.watch(ctx, nil)
		if err == nil {
			open = append(open, s)
			continue
		}
		if !isLimit(err) {
			return "", fmt.Errorf("beyond %d watches: want 429 with Retry-After, got %w", len(open), err)
		}
		if len(open) == 0 {
			return "", errors.New("the first watch was refused with 429")
		}
		n := len(open)
		open[0].close()
		open = open[1:]
		if err := t.untilAdmitted(ctx); err != nil {
			return "", fmt.Errorf("one of %d has ended, and there is no room: %w", n, err)
		}
		return fmt.Sprintf("429 with Retry-After beyond %d, and room again when one has ended", n), nil
	}
	return "", fmt.Errorf("%d watches are open, with a limit of %d", len(open), t.options.Limit)
}

// untilAdmitted opens a watch as soon as there is room: the server hears of the end
// of another a moment after its client.
func (t *target) untilAdmitted(ctx context.Context) error {
	ticker := time.NewTicker(t.options.moment() / 20)
	defer ticker.Stop()
	var refused error
	for {
		s, err := t.watch(ctx, nil)
		switch {
		case err == nil:
			s.close()
			return nil
		case refused != nil && ctx.Err() != nil:
			return refused // the time was over while it was asked once more
		case !isLimit(err):
			return err
		}
		refused = err
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}
