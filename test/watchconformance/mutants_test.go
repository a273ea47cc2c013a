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
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Times of runs against mutants. What is wrong by being absent takes a check the
// whole of its patience to see.
const (
	mutantPatience = 2 * time.Second
	mutantInterval = 10 * referenceInterval
	mutantTries    = 5
)

// judge checks mutants of r, one after the other, until a run tells of the mutant and
// not of the machine: a check was overdue, or r itself stood still meanwhile. Each has
// twice the time of the one before. It returns the last report.
func (r *reference) judge(t *testing.T, mutant func() *mutant, api API, options Options) *Report {
	t.Helper()
	for try := 1; ; try++ {
		began := time.Now()
		m := mutant()
		m.patience = options.Patience
		report, err := Run(t.Context(), m.serve(t, r), api, options)
		if err != nil {
			t.Fatal(err)
		}
		slow := slices.ContainsFunc(report.Results, overdue) || r.pausedSince(began, options.Patience/8)
		if !slow || try == mutantTries {
			return report
		}
		options.Patience *= 2
		options.PointInterval *= 2
		options.BookmarkInterval *= 2
	}
}

// pause is how long the reference took to answer, at a time.
type pause struct {
	at   time.Time
	took time.Duration
}

// pausedSince reports whether r has since taken longer than that to answer.
func (r *reference) pausedSince(began time.Time, limit time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.pauses, func(p pause) bool { return !p.at.Before(began) && p.took > limit })
}

// paceInterval is how often keepPace asks, and the shortest pause that it notes.
const paceInterval = 100 * time.Millisecond

// keepPace notes when r takes so long to answer that the times of a run tell nothing.
func (r *reference) keepPace(t *testing.T) {
	t.Helper()
	c, err := newConnection(r.config)
	if err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(paceInterval)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		ticker.Stop()
	})
	running.Go(func() {
		for due := time.Now(); ctx.Err() == nil; {
			_, err := c.get(ctx, "/apis", nil)
			took := time.Since(due)
			if err != nil {
				took = time.Hour
			}
			if took > paceInterval {
				r.mu.Lock()
				r.pauses = append(r.pauses, pause{time.Now(), took})
				r.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case due = <-ticker.C:
			}
		}
	})
}

// overdue says that a check did not come as far as to judge.
func overdue(r Result) bool { return strings.Contains(r.Why, context.DeadlineExceeded.Error()) }

var version = regexp.MustCompile(`"resourceVersion":"\d+"`)

// asks makes mutants of a change to queries of watches.
func asks(change func(url.Values)) func() *mutant {
	return func() *mutant {
		return &mutant{ask: func(_ *http.Request, query url.Values) {
			if query.Get("watch") == "true" {
				change(query)
			}
		}}
	}
}

// refuses makes mutants that answer some requests with a Status.
func refuses(code int, reason string, which func(*http.Request) bool) func() *mutant {
	return func() *mutant {
		return &mutant{refuse: func(w http.ResponseWriter, r *http.Request) bool { return which(r) && status(w, code, reason) }}
	}
}

// streams makes mutants that send something else for each event.
func streams(change func(e mutantEvent, send func(mutantEvent))) func() *mutant {
	return func() *mutant { return &mutant{stream: each(change)} }
}

// drops makes mutants that leave events out.
func drops(which func(mutantEvent) bool) func() *mutant {
	return streams(func(e mutantEvent, send func(mutantEvent)) {
		if !which(e) {
			send(e)
		}
	})
}

// changesBookmarks makes mutants that change bookmarks.
func changesBookmarks(change func(mutantEvent)) func() *mutant {
	return streams(func(e mutantEvent, send func(mutantEvent)) {
		if e.Type == "BOOKMARK" {
			change(e)
		}
		send(e)
	})
}

// changesFurther makes mutants that send something else for the further data points of an object.
func changesFurther(change func(e mutantEvent, send func(mutantEvent))) func() *mutant {
	return func() *mutant {
		return &mutant{stream: func(*http.Request) func(mutantEvent, func(mutantEvent)) {
			sent := map[string]bool{}
			return func(e mutantEvent, send func(mutantEvent)) {
				if e.Type == "ADDED" && sent[e.key()] {
					change(e, send)
					return
				}
				sent[e.key()] = true
				send(e)
			}
		}}
	}
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
	// Clearly more than the tenth of data points that may be out of order: those of the last seconds are not judged.
	"some objects are never sent": {[]string{"first-all", "resource-version-ignored", "then-at-once", "initial-events-end"}, drops(func(e mutantEvent) bool {
		return e.key() == "/node-1" || strings.HasPrefix(e.key(), "default/") || e.key() == "shop/"+valuePods[1]
	})},
	"only the first data points are sent": {[]string{"then-each-new", "then-at-once", "informer-by-list", "informer-by-watch-list"}, changesFurther(func(mutantEvent, func(mutantEvent)) {})},
	"data points are sent late": {[]string{"then-at-once"}, func() *mutant {
		m := &mutant{}
		m.stream = func(*http.Request) func(mutantEvent, func(mutantEvent)) {
			began := time.Now()
			var held []mutantEvent
			return func(e mutantEvent, send func(mutantEvent)) {
				if time.Since(began) < m.patience/2 {
					send(e)
					return
				}
				// A batch now and then, as of a server that polls.
				if held = append(held, e); time.Since(began) > 3*m.patience {
					for _, e := range held {
						send(e)
					}
				}
			}
		}
		return m
	}},
	"a new data point is MODIFIED": {[]string{"added-only"}, changesFurther(func(e mutantEvent, send func(mutantEvent)) {
		e.Type = "MODIFIED"
		send(e)
	})},
	"every event comes twice": {[]string{"added-only", "resource-version-set"}, streams(func(e mutantEvent, send func(mutantEvent)) { send(e); send(e) })},
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
	"continue tokens expire": {[]string{"continue-never-expires"}, refuses(http.StatusGone, "Expired", func(r *http.Request) bool { return r.URL.Query().Has("continue") })},
	"a continue token begins anew": {[]string{"continue-never-expires"}, func() *mutant {
		return &mutant{ask: func(_ *http.Request, query url.Values) { query.Del("continue") }}
	}},
	"discovery does not name the verb": {[]string{"discovery-is-behaviour"}, func() *mutant {
		return &mutant{answer: func(_ *http.Request, body []byte) []byte {
			return bytes.ReplaceAll(body, []byte(`,"watch"]`), []byte(`]`))
		}}
	}},
	"discovery names a verb that is not served": {[]string{"discovery-is-behaviour"}, refuses(http.StatusMethodNotAllowed, "MethodNotAllowed", isWatch)},
	"a list answers a watch": {[]string{"discovery-is-behaviour"}, func() *mutant {
		return &mutant{
			ask: func(_ *http.Request, query url.Values) { query.Del("watch") },
			answer: func(_ *http.Request, body []byte) []byte {
				return bytes.ReplaceAll(body, []byte(`,"watch"]`), []byte(`]`))
			},
		}
	}},
	"an old resourceVersion is gone": {[]string{"resource-version-ignored", "lists-ignore-resource-version"}, refuses(http.StatusGone, "Expired", func(r *http.Request) bool {
		return r.URL.Query().Get("resourceVersion") == "1"
	})},
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
	"a resourceVersion must be a number": {[]string{"resource-version-ignored", "lists-ignore-resource-version"}, refuses(http.StatusBadRequest, "BadRequest", func(r *http.Request) bool {
		return strings.HasPrefix(r.URL.Query().Get("resourceVersion"), "no")
	})},
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
	"label selectors are not heeded": {[]string{"label-selector"}, asks(func(query url.Values) { query.Del("labelSelector") })},
	"field selectors are not heeded": {[]string{"field-selector", "initial-events-end-of-none"}, asks(func(query url.Values) { query.Del("fieldSelector") })},
	"namespaces are not heeded": {[]string{"namespace"}, func() *mutant {
		return &mutant{ask: func(r *http.Request, query url.Values) {
			if before, _, found := strings.Cut(r.URL.Path, "/namespaces/"); found && query.Get("watch") == "true" {
				r.URL.Path = before + "/" + path.Base(r.URL.Path)
			}
		}}
	}},
	"timeoutSeconds is not heeded": {[]string{"timeout-seconds", "bookmark-before-close", "watch-list-ends-with-504"}, asks(func(query url.Values) { query.Del("timeoutSeconds") })},
	"the end is an error": {[]string{"timeout-seconds", "bookmark-before-close"}, asks(func(query url.Values) {
		query.Set("allowWatchBookmarks", "true")
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", "NotOlderThan")
	})},
	"bookmarks come unasked":                                  {[]string{"bookmarks-only-when-asked", "initial-events-without-bookmarks"}, asks(func(query url.Values) { query.Set("allowWatchBookmarks", "true") })},
	"there are no bookmarks but at the end of initial events": {[]string{"bookmark-interval", "bookmark-before-close"}, drops(func(e mutantEvent) bool { return e.Type == "BOOKMARK" && !e.endsInitial() })},
	"bookmarks have no resourceVersion":                       {[]string{"bookmark-object", "initial-events-end", "initial-events-end-of-none"}, changesBookmarks(func(e mutantEvent) { withVersion(e, "") })},
	"bookmarks have a name":                                   {[]string{"bookmark-object", "initial-events-end"}, changesBookmarks(func(e mutantEvent) { e.metadata()["name"] = "last" })},
	"bookmarks are of another kind":                           {[]string{"bookmark-object", "initial-events-end"}, changesBookmarks(func(e mutantEvent) { e.Object["kind"] = "Status" })},
	"nothing ends the initial events":                         {[]string{"initial-events-end", "initial-events-end-of-none", "informer-by-watch-list"}, drops(mutantEvent.endsInitial)},
	"watch lists are refused": {[]string{"initial-events-end", "informer-by-watch-list"}, refuses(http.StatusUnprocessableEntity, "Invalid", func(r *http.Request) bool {
		return r.URL.Query().Has("sendInitialEvents")
	})},
	"a watch list just ends":    {[]string{"watch-list-ends-with-504"}, drops(func(e mutantEvent) bool { return e.Type == "ERROR" })},
	"all events are plain JSON": {[]string{"protobuf", "table", "metadata-only"}, acceptsJSONOnly},
	"Tables have no columns": {[]string{"table"}, streams(func(e mutantEvent, send func(mutantEvent)) {
		delete(e.Object, "columnDefinitions")
		send(e)
	})},
	"malformed requests are taken": {[]string{"malformed-refused"}, asks(func(query url.Values) {
		query.Del("labelSelector")
		query.Del("fieldSelector")
		query.Del("timeoutSeconds")
	})},
	"malformed requests are the server's fault": {[]string{"malformed-refused"}, refuses(http.StatusInternalServerError, "InternalError", func(r *http.Request) bool {
		return r.URL.Query().Get("timeoutSeconds") == "soon"
	})},
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
	"a watch goes on for pods that stopped matching": {[]string{"labels-that-stop-matching"}, asks(func(query url.Values) {
		query.Set("labelSelector", strings.Replace(query.Get("labelSelector"), matching, labelOfChecks, 1))
	})},
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
	t.Parallel()
	shared := newReference(t, roomy)
	shared.keepPace(t)
	seen := map[string]bool{}
	for name, m := range mutants {
		for _, check := range m.checks {
			seen[check] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := shared
			// A check that makes pods would change the lists of the others.
			if slices.Contains(m.checks, "labels-that-stop-matching") {
				r = newReference(t, roomy)
				r.keepPace(t)
			}
			report := r.judge(t, m.mutant, ResourceMetrics(), Options{
				Patience: mutantPatience, PointInterval: mutantInterval, BookmarkInterval: 2 * time.Second,
				Limit: 8, Watches: 20, Pods: r,
				Only: regexp.MustCompile("^(" + strings.Join(m.checks, "|") + ")$"),
			})
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
