// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
)

// Level is how binding a line is.
type Level int

const (
	// Required by KEP-1013.
	Required Level = iota
	// Expected by clients of Kubernetes: kubectl, client-go, its informers.
	Expected
	// Promised by this project, beyond both.
	Promised
)

func (l Level) String() string { return [...]string{"required", "expected", "promised"}[l] }

// phase of a run.
type phase int

const (
	// The first phase is for most: they wait together.
	_ phase = iota
	// afterOthers, to judge what they have seen.
	afterOthers
	// alone: it opens so many watches that others may be refused.
	alone
	phases
)

// check is a line of the catalogue.
type check struct {
	name  string
	level Level
	// line is the row of the Watch table in docs/design.md, and source the document that it comes from.
	line, source string
	// anyway is for checks of a server, too, that does not serve watch.
	anyway bool
	// metadata is for checks of objects with ObjectMeta.
	metadata bool
	// namespaced is for checks of resources in namespaces.
	namespaced bool
	// phase is when it runs.
	phase phase
	// enabled reports whether the options ask for a check that others do without; nil for
	// always.
	enabled func(*Options) (flag string, ok bool)
	// run returns what was seen, or what was wrong with it.
	run func(context.Context, *target) (string, error)
}

// Sources.
const (
	kepProposal    = "KEP-1013, Proposal"
	kepStories     = "KEP-1013, User Stories"
	kepConstraints = "KEP-1013, Implementation Details"
	kepSkew        = "KEP-1013, Version Skew Strategy"
	kepSLO         = "KEP-1013, SLOs"
	kepBookmarks   = "KEP-956 (watch bookmarks)"
	kepWatchList   = "KEP-3157 (watch list)"
	apiConcepts    = "Kubernetes API concepts"
	informers      = "client-go informers"
	design         = "docs/design.md"
	kubectlWatch   = "kubectl get --watch"
)

// catalogue is every check, the slowest first, so that they share their time.
var catalogue = []check{
	{name: "bookmark-interval", level: Promised, line: "bookmarks", source: design, run: bookmarkInterval},
	{name: "informer-by-watch-list", level: Expected, line: "WatchList", source: informers, metadata: true, run: informerByWatchList},
	{name: "informer-by-list", level: Expected, line: "resourceVersion in objects", source: informers, metadata: true, run: informerByList},
	{name: "labels-that-stop-matching", level: Promised, line: "then", source: design, metadata: true, namespaced: true, enabled: writing, run: labelsThatStopMatching},
	{name: "slow-clients", level: Promised, line: "slow clients", source: design, run: slowClients},
	{name: "first-all", level: Required, line: "first", source: kepProposal, run: firstAll},
	{name: "then-each-new", level: Required, line: "then", source: kepProposal, run: thenEachNew},
	{name: "then-at-once", level: Required, line: "then", source: kepStories, run: thenAtOnce},
	{name: "added-only", level: Required, line: "then", source: kepProposal, run: addedOnly},
	{name: "resource-version-set", level: Expected, line: "resourceVersion in objects", source: informers, metadata: true, run: resourceVersionSet},
	{name: "resource-version-time", level: Promised, line: "resourceVersion in objects", source: design, metadata: true, run: resourceVersionTime},
	{name: "resource-version-identifies", level: Expected, line: "resourceVersion in objects", source: informers, metadata: true, phase: afterOthers, run: resourceVersionIdentifies},
	{name: "polling-unaffected", level: Required, line: "clients that cannot watch", source: kepConstraints, run: pollingUnaffected},
	{name: "continue-never-expires", level: Required, line: "resourceVersion in the request", source: kepProposal, anyway: true, run: continueNeverExpires},

	{name: "discovery-is-behaviour", level: Required, line: "mode", source: kepSkew, anyway: true, run: discoveryIsBehaviour},
	{name: "resource-version-ignored", level: Required, line: "resourceVersion in the request", source: kepProposal, run: resourceVersionIgnored},
	{name: "lists-ignore-resource-version", level: Required, line: "resourceVersion in the request", source: kepProposal, anyway: true, run: listsIgnoreResourceVersion},
	{name: "label-selector", level: Required, line: "then", source: kepStories, metadata: true, run: labelSelector},
	{name: "field-selector", level: Expected, line: "then", source: kubectlWatch, metadata: true, run: fieldSelector},
	{name: "namespace", level: Required, line: "paths", source: kepConstraints, namespaced: true, run: inNamespace},
	{name: "timeout-seconds", level: Expected, line: "limits", source: apiConcepts, run: timeoutSeconds},
	{name: "bookmarks-only-when-asked", level: Expected, line: "bookmarks", source: kepBookmarks, run: bookmarksOnlyWhenAsked},
	{name: "bookmark-before-close", level: Promised, line: "bookmarks", source: design, metadata: true, run: bookmarkBeforeClose},
	{name: "bookmark-object", level: Expected, line: "bookmarks", source: kepBookmarks, metadata: true, run: bookmarkObject},
	{name: "initial-events-end", level: Expected, line: "WatchList", source: kepWatchList, metadata: true, run: initialEventsEnd},
	{name: "initial-events-end-of-none", level: Expected, line: "WatchList", source: kepWatchList, metadata: true, run: initialEventsEndOfNone},
	{name: "initial-events-without-bookmarks", level: Expected, line: "WatchList", source: kepWatchList, metadata: true, run: initialEventsWithoutBookmarks},
	{name: "watch-list-ends-with-504", level: Promised, line: "WatchList", source: design, metadata: true, run: watchListEndsWith504},
	{name: "protobuf", level: Expected, line: "event objects", source: apiConcepts, metadata: true, run: protobuf},
	{name: "table", level: Expected, line: "event objects", source: kubectlWatch, metadata: true, run: table},
	{name: "metadata-only", level: Expected, line: "event objects", source: informers, metadata: true, run: metadataOnly},
	{name: "malformed-refused", level: Expected, line: "paths", source: apiConcepts, metadata: true, run: malformedRefused},
	{name: "many-watches", level: Required, line: "cost", source: kepSLO, phase: alone, run: manyWatches},
	{name: "open-and-close", level: Required, line: "limits", source: kepSLO, run: openAndClose},
	{name: "limit-429", level: Promised, line: "limits", source: design, phase: alone, enabled: limiting, run: limit429},
}
