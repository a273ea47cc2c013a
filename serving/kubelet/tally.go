// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"strings"
	"time"
)

// skipReason says why a sample was not used. It is a metric label's value.
type skipReason uint8

const (
	skipNone skipReason = iota
	// skipMalformed: not the exposition format.
	skipMalformed
	// skipTruncated: the last line has no newline, so digits may be missing.
	skipTruncated
	// skipLabels: no container, pod and namespace, or not names, or too long.
	skipLabels
	// skipNotFinite: NaN or infinite.
	skipNotFinite
	// skipNegative: less than zero.
	skipNegative
	// skipTooLarge: more than the quantity can be.
	skipTooLarge
	// skipFuture: the timestamp is more than maxFuture ahead of our clock.
	skipFuture
	// skipOld: the timestamp is more than maxPast behind our clock.
	skipOld
	// skipDuplicate: the body has this series already.
	skipDuplicate
	// skipTooMany: more containers than a node or a pod can have.
	skipTooMany
	// skipImplausible: a counter that rose faster than any node can count.
	skipImplausible
	skipReasons
)

var skipNames = [skipReasons]string{
	skipNone:        "None",
	skipMalformed:   "Malformed",
	skipTruncated:   "Truncated",
	skipLabels:      "Labels",
	skipNotFinite:   "NotFinite",
	skipNegative:    "Negative",
	skipTooLarge:    "TooLarge",
	skipFuture:      "Future",
	skipOld:         "Old",
	skipDuplicate:   "Duplicate",
	skipTooMany:     "TooMany",
	skipImplausible: "Implausible",
}

func (r skipReason) String() string { return skipNames[r] }

// exampleLength bounds what is kept of a skipped line.
const exampleLength = 160

// tally counts what was found in one body.
type tally struct {
	// samples of CPU and memory that were taken.
	samples int
	skipped [skipReasons]int
	// example is the beginning of the first line that was skipped.
	example string
	// ahead is how far the furthest future sample is ahead of our clock.
	ahead time.Duration
	// kubeletFailed is true where the kubelet says that it could not read its
	// containers' figures.
	kubeletFailed bool
}

func (t *tally) skip(reason skipReason, line []byte) {
	if t.example == "" {
		t.example = string(line[:min(len(line), exampleLength)])
	}
	t.skipped[reason]++
}

// reasons is the set of reasons, one bit each.
func (t *tally) reasons() (set uint32) {
	for reason, n := range t.skipped {
		if n > 0 {
			set |= 1 << reason
		}
	}
	return set
}

// String lists the reasons with their counts.
func (t *tally) String() string {
	var b strings.Builder
	for reason, n := range t.skipped {
		if n == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %d", skipReason(reason), n)
	}
	return b.String()
}
