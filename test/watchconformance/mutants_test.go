// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Times of runs against mutants. What is wrong by being absent takes a check the
// whole of its patience to see.
const (
	mutantPatience = 2 * time.Second
	mutantInterval = 10 * referenceInterval
	mutantTries    = 3
)

// overdue says that a check did not come as far as to judge.
func overdue(r Result) bool { return strings.Contains(r.Why, context.DeadlineExceeded.Error()) }

var version = regexp.MustCompile(`"resourceVersion":"\d+"`)

// asks makes a mutant of a change to queries of watches.
func asks(change func(url.Values)) *mutant {
	return &mutant{ask: func(_ *http.Request, query url.Values) {
		if query.Get("watch") == "true" {
			change(query)
		}
	}}
}

func streams(change func(e mutantEvent, send func(mutantEvent))) *mutant {
	return &mutant{stream: each(change)}
}

// acceptsJSONOnly is a mutant that takes every watch for one in plain JSON.
func acceptsJSONOnly() *mutant {
	return &mutant{ask: func(r *http.Request, query url.Values) {
		if query.Get("watch") == "true" {
			r.Header.Set("Accept", acceptJSON)
		}
	}}
}

// mutants are servers that break a line, by what is wrong with them, and the checks
// that must say so.
var mutants = map[string]struct {
	checks []string
	mutant func() *mutant
}{
	"an object is never sent": {[]string{"first-all", "resource-version-ignored", "then-at-once", "initial-events-end"}, func() *mutant {
		return &mutant{stream: without(func(e mutantEvent) bool { return e.key() == "/node-1" || e.key() == "default/pod-0" })}
	}},
	"only the first data points are sent": {[]string{"then-each-new", "then-at-once", "informer-by-list", "informer-by-watch-list"}, func() *mutant {
		return &mutant{stream: func(*http.Request) func(mutantEvent, func(mutantEvent)) {
			sent := map[string]bool{}
			return func(e mutantEvent, send func(mutantEvent)) {
				if e.Type != "ADDED" || !sent[e.key()] {
					send(e)
				}
				sent[e.key()] = true
			}
		}}
	}},
	"data points are sent late": {[]string{"then-at-once"}, func() *mutant {
		return &mutant{stream: func(*http.Request) func(mutantEvent, func(mutantEvent)) {
			began := time.Now()
			var held []mutantEvent
			return func(e mutantEvent, send func(mutantEvent)) {
				if time.Since(began) < mutantPatience/2 {
					send(e)
					return
				}
				// A batch now and then, as of a server that polls.
				if held = append(held, e); time.Since(began) > 3*mutantPatience {
					for _, e := range held {
						send(e)
					}
				}
			}
		}}
	}},
	"a new data point is MODIFIED": {[]string{"added-only"}, func() *mutant {
		return &mutant{stream: func(*http.Request) func(mutantEvent, func(mutantEvent)) {
			sent := map[string]bool{}
			return func(e mutantEvent, send func(mutantEvent)) {
				if e.Type == "ADDED" && sent[e.key()] {
					e.Type = "MODIFIED"
				}
				sent[e.key()] = true
				send(e)
			}
		}}
	}},
	"every event comes twice": {[]string{"added-only", "resource-version-set"}, func() *mutant {
		return streams(func(e mutantEvent, send func(mutantEvent)) { send(e); send(e) })
	}},
	"objects have no resourceVersion": {[]string{"resource-version-set", "resource-version-time", "metadata-only", "table"}, func() *mutant {
		return &mutant{
			answer: func(_ *http.Request, body []byte) []byte {
				return version.ReplaceAll(body, []byte(`"resourceVersion":""`))
			},
			stream: each(func(e mutantEvent, send func(mutantEvent)) { send(withVersion(e, "")) }),
		}
	}},
	"all objects have the same resourceVersion": {[]string{"resource-version-set", "resource-version-identifies", "resource-version-time", "informer-by-list", "informer-by-watch-list"}, func() *mutant {
		return &mutant{
			answer: func(_ *http.Request, body []byte) []byte {
				return version.ReplaceAll(body, []byte(`"resourceVersion":"7"`))
			},
			stream: each(func(e mutantEvent, send func(mutantEvent)) { send(withVersion(e, "7")) }),
		}
	}},
	"the resourceVersion counts what a connection is sent": {[]string{"resource-version-identifies", "resource-version-time"}, func() *mutant {
		return &mutant{stream: func(*http.Request) func(mutantEvent, func(mutantEvent)) {
			n := 0
			return func(e mutantEvent, send func(mutantEvent)) { n++; send(withVersion(e, fmt.Sprint(n))) }
		}}
	}},
	"lists are empty while a watch is open": {[]string{"polling-unaffected"}, func() *mutant {
		m := &mutant{}
		m.answer = func(_ *http.Request, body []byte) []byte {
			if m.open.Load() > 0 && bytes.Contains(body, []byte(`"items":[`)) {
				return []byte(`{"items":[]}`)
			}
			return body
		}
		return m
	}},
	"continue tokens expire": {[]string{"continue-never-expires"}, func() *mutant {
		return &mutant{refuse: func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Query().Has("continue") && status(w, http.StatusGone, "Expired")
		}}
	}},
	"a continue token begins anew": {[]string{"continue-never-expires"}, func() *mutant {
		return &mutant{ask: func(_ *http.Request, query url.Values) { query.Del("continue") }}
	}},
	"discovery does not name the verb": {[]string{"discovery-is-behaviour"}, func() *mutant {
		return &mutant{answer: func(_ *http.Request, body []byte) []byte {
			return bytes.ReplaceAll(body, []byte(`,"watch"]`), []byte(`]`))
		}}
	}},
	"discovery names a verb that is not served": {[]string{"discovery-is-behaviour"}, func() *mutant {
		return &mutant{refuse: func(w http.ResponseWriter, r *http.Request) bool {
			return isWatch(r) && status(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
		}}
	}},
	"a list answers a watch": {[]string{"discovery-is-behaviour"}, func() *mutant {
		return &mutant{
			ask: func(_ *http.Request, query url.Values) { query.Del("watch") },
			answer: func(_ *http.Request, body []byte) []byte {
				return bytes.ReplaceAll(body, []byte(`,"watch"]`), []byte(`]`))
			},
		}
	}},
	"an old resourceVersion is gone": {[]string{"resource-version-ignored", "lists-ignore-resource-version"}, func() *mutant {
		return &mutant{refuse: func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Query().Get("resourceVersion") == "1" && status(w, http.StatusGone, "Expired")
		}}
	}},
	"an old resourceVersion is an ERROR": {[]string{"resource-version-ignored"}, func() *mutant {
		return &mutant{stream: func(r *http.Request) func(mutantEvent, func(mutantEvent)) {
			return func(e mutantEvent, send func(mutantEvent)) {
				if r.URL.Query().Get("resourceVersion") == "1" {
					e = mutantEvent{Type: "ERROR", Object: map[string]any{"kind": "Status", "code": 410}}
				}
				send(e)
			}
		}}
	}},
	"a resourceVersion must be a number": {[]string{"resource-version-ignored", "lists-ignore-resource-version"}, func() *mutant {
		return &mutant{refuse: func(w http.ResponseWriter, r *http.Request) bool {
			return strings.HasPrefix(r.URL.Query().Get("resourceVersion"), "no") && status(w, http.StatusBadRequest, "BadRequest")
		}}
	}},
	"nothing older than the resourceVersion is sent": {[]string{"resource-version-ignored", "lists-ignore-resource-version"}, func() *mutant {
		future := func(r *http.Request) bool { return len(r.URL.Query().Get("resourceVersion")) > 18 }
		return &mutant{
			answer: func(r *http.Request, body []byte) []byte {
				if future(r) {
					return []byte(`{"items":[]}`)
				}
				return body
			},
			stream: func(r *http.Request) func(mutantEvent, func(mutantEvent)) {
				return func(e mutantEvent, send func(mutantEvent)) {
					if !future(r) {
						send(e)
					}
				}
			},
		}
	}},
	"label selectors are not heeded": {[]string{"label-selector"}, func() *mutant {
		return asks(func(query url.Values) { query.Del("labelSelector") })
	}},
	"field selectors are not heeded": {[]string{"field-selector", "initial-events-end-of-none"}, func() *mutant {
		return asks(func(query url.Values) { query.Del("fieldSelector") })
	}},
	"namespaces are not heeded": {[]string{"namespace"}, func() *mutant {
		return &mutant{ask: func(r *http.Request, query url.Values) {
			if before, _, found := strings.Cut(r.URL.Path, "/namespaces/"); found && query.Get("watch") == "true" {
				r.URL.Path = before + "/" + path.Base(r.URL.Path)
			}
		}}
	}},
	"timeoutSeconds is not heeded": {[]string{"timeout-seconds", "bookmark-before-close", "watch-list-ends-with-504"}, func() *mutant {
		return asks(func(query url.Values) { query.Del("timeoutSeconds") })
	}},
	"the end is an error": {[]string{"timeout-seconds", "bookmark-before-close"}, func() *mutant {
		return asks(func(query url.Values) {
			query.Set("allowWatchBookmarks", "true")
			query.Set("sendInitialEvents", "true")
			query.Set("resourceVersionMatch", "NotOlderThan")
		})
	}},
	"bookmarks come unasked": {[]string{"bookmarks-only-when-asked", "initial-events-without-bookmarks"}, func() *mutant {
		return asks(func(query url.Values) { query.Set("allowWatchBookmarks", "true") })
	}},
	"there are no bookmarks but at the end of initial events": {[]string{"bookmark-interval", "bookmark-before-close"}, func() *mutant {
		return &mutant{stream: without(func(e mutantEvent) bool { return e.Type == "BOOKMARK" && !e.endsInitial() })}
	}},
	"bookmarks have no resourceVersion": {[]string{"bookmark-object", "initial-events-end", "initial-events-end-of-none"}, func() *mutant {
		return streams(func(e mutantEvent, send func(mutantEvent)) {
			if e.Type == "BOOKMARK" {
				e = withVersion(e, "")
			}
			send(e)
		})
	}},
	"bookmarks have a name": {[]string{"bookmark-object", "initial-events-end"}, func() *mutant {
		return streams(func(e mutantEvent, send func(mutantEvent)) {
			if e.Type == "BOOKMARK" {
				e.metadata()["name"] = "last"
			}
			send(e)
		})
	}},
	"bookmarks are of another kind": {[]string{"bookmark-object", "initial-events-end"}, func() *mutant {
		return streams(func(e mutantEvent, send func(mutantEvent)) {
			if e.Type == "BOOKMARK" {
				e.Object["kind"] = "Status"
			}
			send(e)
		})
	}},
	"nothing ends the initial events": {[]string{"initial-events-end", "initial-events-end-of-none", "informer-by-watch-list"}, func() *mutant {
		return &mutant{stream: without(mutantEvent.endsInitial)}
	}},
	"watch lists are refused": {[]string{"initial-events-end", "informer-by-watch-list"}, func() *mutant {
		return &mutant{refuse: func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Query().Has("sendInitialEvents") && status(w, http.StatusUnprocessableEntity, "Invalid")
		}}
	}},
	"a watch list just ends": {[]string{"watch-list-ends-with-504"}, func() *mutant {
		return &mutant{stream: without(func(e mutantEvent) bool { return e.Type == "ERROR" })}
	}},
	"all events are plain JSON": {[]string{"protobuf", "table", "metadata-only"}, acceptsJSONOnly},
	"Tables have no columns": {[]string{"table"}, func() *mutant {
		return streams(func(e mutantEvent, send func(mutantEvent)) { delete(e.Object, "columnDefinitions"); send(e) })
	}},
	"malformed requests are taken": {[]string{"malformed-refused"}, func() *mutant {
		return asks(func(query url.Values) {
			query.Del("labelSelector")
			query.Del("fieldSelector")
			query.Del("timeoutSeconds")
		})
	}},
	"malformed requests are the server's fault": {[]string{"malformed-refused"}, func() *mutant {
		return &mutant{refuse: func(w http.ResponseWriter, r *http.Request) bool {
			return r.URL.Query().Get("timeoutSeconds") == "soon" && status(w, http.StatusInternalServerError, "InternalError")
		}}
	}},
	"one client waits for another": {[]string{"slow-clients"}, func() *mutant { return &mutant{inTurn: true} }},
	"there is room for ten watches": {[]string{"many-watches"}, func() *mutant {
		m := &mutant{}
		m.refuse = func(w http.ResponseWriter, r *http.Request) bool {
			return m.open.Load() > 10 && isWatch(r) && status(w, http.StatusServiceUnavailable, "ServiceUnavailable")
		}
		return m
	}},
	"one in three watches fails": {[]string{"open-and-close"}, func() *mutant {
		var n atomic.Int64
		return &mutant{refuse: func(w http.ResponseWriter, r *http.Request) bool {
			return isWatch(r) && n.Add(1)%3 == 0 && status(w, http.StatusInternalServerError, "InternalError")
		}}
	}},
	"there is no limit": {[]string{"limit-429"}, func() *mutant { return &mutant{} }},
	"the limit does not say when to come back": {[]string{"limit-429"}, func() *mutant {
		m := &mutant{}
		m.refuse = func(w http.ResponseWriter, r *http.Request) bool {
			return m.open.Load() > 4 && isWatch(r) && status(w, http.StatusTooManyRequests, "TooManyRequests")
		}
		return m
	}},
	"a watch that ended keeps its place": {[]string{"limit-429"}, func() *mutant {
		var n atomic.Int64
		return &mutant{refuse: func(w http.ResponseWriter, r *http.Request) bool {
			if !isWatch(r) || n.Add(1) <= 4 {
				return false
			}
			w.Header().Set("Retry-After", "1")
			return status(w, http.StatusTooManyRequests, "TooManyRequests")
		}}
	}},
	"a watch goes on for pods that stopped matching": {[]string{"labels-that-stop-matching"}, func() *mutant {
		return asks(func(query url.Values) {
			query.Set("labelSelector", strings.Replace(query.Get("labelSelector"), matching, labelOfChecks, 1))
		})
	}},
	"a pod that stopped matching is DELETED": {[]string{"labels-that-stop-matching"}, func() *mutant {
		return &mutant{
			ask: func(_ *http.Request, query url.Values) {
				if query.Has("labelSelector") {
					query.Set("labelSelector", strings.Replace(query.Get("labelSelector"), matching, labelOfChecks, 1))
				}
			},
			stream: each(func(e mutantEvent, send func(mutantEvent)) {
				labels, _ := e.metadata()["labels"].(map[string]any)
				if labels[labelOfChecks] == "other" {
					e.Type = "DELETED"
				}
				send(e)
			}),
		}
	}},
}

func withVersion(e mutantEvent, version string) mutantEvent {
	for _, metadata := range append(rowMetadata(e), e.metadata()) {
		if version == "" {
			delete(metadata, "resourceVersion")
		} else if metadata["resourceVersion"] != nil {
			metadata["resourceVersion"] = version
		}
	}
	return e
}

// rowMetadata is the metadata of the objects in a Table.
func rowMetadata(e mutantEvent) []map[string]any {
	var all []map[string]any
	rows, _ := e.Object["rows"].([]any)
	for _, row := range rows {
		row, _ := row.(map[string]any)
		object, _ := row["object"].(map[string]any)
		if metadata, ok := object["metadata"].(map[string]any); ok {
			all = append(all, metadata)
		}
	}
	return all
}

// TestMutants: each check fails on a server that breaks its line. A check that has
// no such server might never fail.
func TestMutants(t *testing.T) {
	r := newReference(t, roomy)
	seen := map[string]bool{}
	for name, m := range mutants {
		for _, check := range m.checks {
			seen[check] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var report *Report
			// A request that was not answered in time tells of the machine.
			for range mutantTries {
				var err error
				report, err = Run(t.Context(), m.mutant().serve(t, r), ResourceMetrics(), Options{
					Patience: mutantPatience, PointInterval: mutantInterval, BookmarkInterval: 2 * time.Second, Limit: 8, Watches: 20, Pods: r,
					Only: regexp.MustCompile("^(" + strings.Join(m.checks, "|") + ")$"),
				})
				if err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(report.Results, overdue) {
					break
				}
			}
			for _, check := range m.checks {
				if !slices.ContainsFunc(report.Results, func(r Result) bool { return r.Check == check && r.Outcome == Failed && !overdue(r) }) {
					t.Errorf("%s did not fail", check)
				}
			}
			for _, result := range report.Results {
				if strings.Contains(result.Why, "the watch broke") && !overdue(result) {
					t.Errorf("%s fails for another reason: %s", result.Check, result.Why)
				}
				if result.Outcome == Passed {
					t.Errorf("%s of %s %s passes: %s", result.Check, result.Version, result.Resource, result.Why)
				}
			}
			if t.Failed() {
				t.Logf("\n%s", report)
			}
		})
	}
	for _, check := range catalogue {
		if !seen[check.name] {
			t.Errorf("no mutant breaks the line of %s", check.name)
		}
	}
}
