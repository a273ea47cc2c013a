// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
)

// target is one resource of one version, with what its checks share.
type target struct {
	api      API
	resource Resource
	version  string
	// served says that discovery names the watch verb.
	served bool

	config     *rest.Config
	connection *connection
	options    Options
	ledger     *ledger
	newObjects *newObjects
	// recorded is the observation that several checks judge.
	recorded func(context.Context) (*recording, error)
}

// errUnseen says that what a check looks for did not happen or is not there: it
// says nothing of the server.
var errUnseen = errors.New("not seen")

func unseen(format string, a ...any) error {
	return fmt.Errorf("%w: %s", errUnseen, fmt.Sprintf(format, a...))
}

// params makes a query of pairs.
func params(pairs ...string) url.Values {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	return query
}

func (t *target) path(namespace string) string { return t.resource.Path(t.version, namespace) }

func (t *target) watchPath(namespace string) string {
	if t.resource.WatchPath != nil {
		return t.resource.WatchPath(t.version, namespace)
	}
	return t.path(namespace)
}

// listing is a list that was read.
type listing struct {
	began, ended time.Time
	objects      []Object
	next         string // the continue token
}

// list reads a list of all namespaces, or of what the query selects.
func (t *target) list(ctx context.Context, query url.Values) (*listing, error) {
	return t.listIn(ctx, "", query)
}

func (t *target) listIn(ctx context.Context, namespace string, query url.Values) (*listing, error) {
	l := &listing{began: time.Now()}
	body, err := t.connection.get(ctx, t.path(namespace), query)
	if err != nil {
		return nil, fmt.Errorf("list %s?%s: %w", t.path(namespace), query.Encode(), err)
	}
	l.ended = time.Now()
	var list struct {
		APIVersion, Kind string
		Metadata         struct{ Continue string }
		Items            []json.RawMessage
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode the list of %s: %w", t.path(namespace), err)
	}
	l.next = list.Metadata.Continue
	for _, item := range list.Items {
		o, err := t.resource.Identify(item)
		if err != nil {
			return nil, err
		}
		l.objects = append(l.objects, o)
	}
	t.ledger.note(t.resource.Name, l.objects...)
	t.newObjects.note(t.resource.Name, l.objects, l.began)
	return l, nil
}

// watch opens a watch of all namespaces, which the server is to end some time
// after the check, in case that this process does not.
func (t *target) watch(ctx context.Context, query url.Values) (*openWatch, error) {
	return t.watchIn(ctx, "", query)
}

func (t *target) watchIn(ctx context.Context, namespace string, query url.Values) (*openWatch, error) {
	return t.connection.watch(ctx, t.watchPath(namespace), t.watchQuery(query), t.resource.Identify)
}

func (t *target) watchQuery(query url.Values) url.Values {
	full := params("watch", "true", "timeoutSeconds", strconv.Itoa(int(t.options.longest().Seconds())+60))
	maps.Copy(full, query)
	return full
}

// within bounds what is due at once.
func (t *target) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, t.options.Patience)
}

// initial opens a watch and returns the objects of its first events: at least
// those that a list has before it as well as after.
func (t *target) initial(ctx context.Context, namespace string, query, selection url.Values) ([]Object, error) {
	return t.initialOf(ctx, namespace, selection, func() (*openWatch, error) {
		both := url.Values{}
		maps.Copy(both, query)
		maps.Copy(both, selection)
		s, err := t.watchIn(ctx, namespace, both)
		if err != nil {
			return nil, fmt.Errorf("watch with %q: %w", both.Encode(), err)
		}
		return s, nil
	})
}

// initialOf does the same with a watch that open opens.
func (t *target) initialOf(ctx context.Context, namespace string, selection url.Values, open func() (*openWatch, error)) ([]Object, error) {
	before, err := t.listIn(ctx, namespace, selection)
	if err != nil {
		return nil, err
	}
	s, err := open()
	if err != nil {
		return nil, err
	}
	defer s.close()
	after, err := t.listIn(ctx, namespace, selection)
	if err != nil {
		return nil, err
	}
	return t.expectInitial(ctx, s, t.expected(before, after))
}

// expectInitial reads until each of the wanted objects was ADDED, at once, and a
// moment longer: what must not be sent may come last.
func (t *target) expectInitial(ctx context.Context, s *openWatch, want map[string]Object) ([]Object, error) {
	if len(want) == 0 {
		return nil, unseen("there are no %s to be sent", t.resource.Name)
	}
	ctx, cancel := t.within(ctx)
	defer cancel()
	var got []Object
	var wrong error
	missing := maps.Clone(want)
	err := s.each(ctx, func(e event) bool {
		switch e.Type {
		case "ADDED":
			got = append(got, e.Object)
			delete(missing, e.Object.key())
		case "BOOKMARK":
		default:
			wrong = fmt.Errorf("an event of type %s: %.300s", e.Type, e.Raw)
		}
		return wrong != nil || len(missing) == 0
	})
	if err == nil && wrong == nil {
		ctx, cancel := context.WithTimeout(ctx, t.options.moment()/10)
		defer cancel()
		err = s.each(ctx, func(e event) bool {
			if e.Type == "ADDED" {
				got = append(got, e.Object)
			}
			return false
		})
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
	}
	switch {
	case wrong != nil:
		return got, wrong
	case errors.Is(err, context.DeadlineExceeded):
		return got, fmt.Errorf("%d of %d %s were not sent within %s, as %s", len(missing), len(want), t.resource.Name, t.options.Patience, anyKey(missing))
	case err != nil:
		return got, ended(s, err)
	}
	return got, nil
}

// lasting are the objects that both lists have.
func lasting(before, after *listing) map[string]Object {
	there := map[string]Object{}
	for _, o := range before.objects {
		there[o.key()] = o
	}
	both := map[string]Object{}
	for _, o := range after.objects {
		if _, ok := there[o.key()]; ok {
			both[o.key()] = o
		}
	}
	return both
}

func anyKey[V any](m map[string]V) string {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}
