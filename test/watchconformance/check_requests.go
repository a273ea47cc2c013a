// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// discoveryIsBehaviour: a client that reads in discovery that watch is served gets a stream,
// and otherwise an error, not a list.
func discoveryIsBehaviour(ctx context.Context, t *target) (string, error) {
	ctx, cancel := t.within(ctx)
	defer cancel()
	s, err := t.watch(ctx, nil)
	var refused *refusal
	switch {
	case err == nil:
		defer s.close()
	case !errors.As(err, &refused):
		return "", err
	case t.served:
		return "", fmt.Errorf("discovery names watch, the answer is %w", refused)
	case refused.code == http.StatusMethodNotAllowed:
		return "not in discovery, and answered with 405", nil
	case refused.code >= 400 && refused.code < 500:
		return "", fmt.Errorf("a server without watch answers 405, this one %w", refused)
	default:
		return "", fmt.Errorf("the answer is %w", refused)
	}
	err = s.each(ctx, func(event) bool { return true })
	switch {
	case errors.Is(err, errPlainList):
		return "", err
	case !t.served:
		return "", errors.New("the watch is answered with a stream, and discovery does not name the verb")
	case errors.Is(err, context.DeadlineExceeded):
		return "in discovery, and a stream answers", nil
	case err != nil:
		return "", ended(s, err)
	}
	return "in discovery, and a stream with events answers", nil
}

// resourceVersions that a request may name: none has an effect.
var resourceVersions = []string{"", "0", "1", "99999999999999999999", "no-number", "-1"}

func resourceVersionIgnored(ctx context.Context, t *target) (string, error) {
	for _, rv := range resourceVersions {
		if _, err := t.initial(ctx, "", params("resourceVersion", rv), nil); err != nil {
			return "", fmt.Errorf("resourceVersion=%q: %w", rv, err)
		}
	}
	return fmt.Sprintf("the same first events with each of %q", resourceVersions), nil
}

// listsIgnoreResourceVersion: a replica may have learned of an object later than
// those that answered before and after it, so what is lacking is looked for again.
func listsIgnoreResourceVersion(ctx context.Context, t *target) (string, error) {
	const looks = 3
	for _, rv := range resourceVersions {
		for look := 1; ; look++ {
			before, key, err := t.lacking(ctx, rv)
			if err != nil {
				return "", err
			}
			if key == "" {
				break
			}
			if look == looks {
				return "", fmt.Errorf("the list with resourceVersion=%q lacks %s, %d times", rv, key, looks)
			}
			pause, cancel := context.WithTimeout(ctx, 2*t.options.PointInterval+t.options.Patience)
			err = t.waitRenewed(pause, before.objects)
			cancel()
			if err != nil {
				return "", err
			}
		}
	}
	return fmt.Sprintf("the same lists with each of %q", resourceVersions), nil
}

// lacking returns an object that is in the lists before and after one with a
// resourceVersion, but not in that; empty where there is none.
func (t *target) lacking(ctx context.Context, rv string) (before *listing, key string, err error) {
	before, err = t.list(ctx, nil)
	if err != nil {
		return nil, "", err
	}
	with, err := t.list(ctx, params("resourceVersion", rv))
	if err != nil {
		return nil, "", err
	}
	after, err := t.list(ctx, nil)
	if err != nil {
		return nil, "", err
	}
	want := t.expected(before, after)
	for key := range lasting(with, with) {
		delete(want, key)
	}
	return before, anyKey(want), nil
}

// continueNeverExpires: a token is good after every object it was made of has
// another resourceVersion.
func continueNeverExpires(ctx context.Context, t *target) (string, error) {
	first, err := t.list(ctx, params("limit", "1"))
	if err != nil {
		return "", err
	}
	if first.next == "" {
		return fmt.Sprintf("lists come whole: %d with limit=1, and no token", len(first.objects)), nil
	}
	if len(first.objects) != 1 {
		return "", fmt.Errorf("a list with limit=1 has a token and %d objects", len(first.objects))
	}
	ctx, cancel := context.WithTimeout(ctx, 2*t.options.PointInterval+t.options.Patience)
	defer cancel()
	before, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	if err := t.waitRenewed(ctx, before.objects); err != nil {
		return "", err
	}
	rest, err := t.list(ctx, params("continue", first.next))
	if err != nil {
		return "", fmt.Errorf("after a new data point: %w", err)
	}
	all, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	got := lasting(rest, all)
	if _, ok := got[first.objects[0].key()]; ok {
		return "", fmt.Errorf("the continued list begins at the start again, with %s", first.objects[0].key())
	}
	if len(all.objects) > 1 && len(got) == 0 {
		return "", fmt.Errorf("the continued list has none of the %d other objects", len(all.objects)-1)
	}
	return fmt.Sprintf("a token went on to %d others after a new data point", len(got)), nil
}

// waitRenewed waits until one of the objects has another data point. Which one is
// left to chance: any of them may be gone.
func (t *target) waitRenewed(ctx context.Context, objects []Object) error {
	had := map[string]string{}
	for _, o := range objects {
		had[o.key()] = o.identity()
	}
	ticker := time.NewTicker(min(max(t.options.PointInterval/20, 20*time.Millisecond), time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return unseen("none of %d objects had a new data point in time", len(objects))
		case <-ticker.C:
		}
		l, err := t.list(ctx, nil)
		if err != nil {
			continue
		}
		for _, now := range l.objects {
			if before, ok := had[now.key()]; ok && before != now.identity() {
				return nil
			}
		}
	}
}

// inNamespace: a watch of one namespace tells of no other.
func inNamespace(ctx context.Context, t *target) (string, error) {
	all, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	counts := map[string]int{}
	for _, o := range all.objects {
		counts[o.Namespace]++
	}
	if len(counts) < 2 {
		return "", unseen("objects are in %d namespaces", len(counts))
	}
	namespace := anyKey(counts)
	got, err := t.initial(ctx, namespace, nil, nil)
	if err != nil {
		return "", fmt.Errorf("in namespace %s: %w", namespace, err)
	}
	for _, o := range got {
		if o.Namespace != namespace {
			return "", fmt.Errorf("the watch of namespace %s sends %s", namespace, o.key())
		}
	}
	return fmt.Sprintf("%d of namespace %s, of %d", len(got), namespace, len(counts)), nil
}

// timeoutSeconds: the server ends the watch when it was told to, and cleanly.
func timeoutSeconds(ctx context.Context, t *target) (string, error) {
	timeout := t.options.shortTimeout()
	events, s, err := t.untilClose(ctx, params())
	if err != nil {
		return "", err
	}
	lasted := time.Since(s.opened)
	switch {
	case len(events) > 0 && events[len(events)-1].Type == "ERROR":
		return "", fmt.Errorf("it ends with an ERROR event: %.300s", events[len(events)-1].Raw)
	case lasted < timeout/2:
		return "", fmt.Errorf("timeoutSeconds=%s ends it after %s", seconds(timeout), lasted.Round(10*time.Millisecond))
	}
	return fmt.Sprintf("%s ended it after %s, cleanly", seconds(timeout), lasted.Round(10*time.Millisecond)), nil
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }

// malformedRefused: what cannot be understood is 400, with a Status.
func malformedRefused(ctx context.Context, t *target) (string, error) {
	malformed := [][2]string{
		{"labelSelector", "app in (web"},
		{"fieldSelector", "metadata.name"},
		{"fieldSelector", "spec.no-such-field=1"},
		{"timeoutSeconds", "soon"},
	}
	for _, m := range malformed {
		ctx, cancel := t.within(ctx)
		defer cancel()
		s, err := t.watch(ctx, params(m[0], m[1]))
		var refused *refusal
		switch {
		case err == nil:
			s.close()
			return "", fmt.Errorf("%s=%q: a stream answers", m[0], m[1])
		case !errors.As(err, &refused):
			return "", fmt.Errorf("%s=%q: %w", m[0], m[1], err)
		case refused.code != http.StatusBadRequest:
			return "", fmt.Errorf("%s=%q: want 400, got %w", m[0], m[1], refused)
		}
		if _, ok := refused.status(); !ok {
			return "", fmt.Errorf("%s=%q: the body of the 400 is no Status: %.100q", m[0], m[1], refused.body)
		}
	}
	return fmt.Sprintf("%d malformed requests", len(malformed)), nil
}
