// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"strings"
	"time"
)

// skipReason is why a sample was not used. It is the value of a metric's label.
type skipReason uint8

const (
	skipNone skipReason = iota
	// skipMalformed: not the exposition format.
	skipMalformed
	// skipTruncated: the last line has no newline, so digits may be missing.
	skipTruncated
	// skipLabels: container, pod or namespace is missing, no valid name or too long.
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
	// skipDuplicate: the series was in the body before.
	skipDuplicate
	// skipTooMany: more containers than a node or a pod can have.
	skipTooMany
	// skipImplausible: the counter rose faster than any node can count.
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

// exampleLength bounds parseStats.example.
const exampleLength = 160

// parseStats counts the samples of one body.
type parseStats struct {
	// samples counts the CPU and memory samples that were used.
	samples int
	skipped [skipReasons]int
	// example is the beginning of the first skipped line.
	example string
	// ahead is how far the latest future timestamp is ahead of our clock.
	ahead time.Duration
	// behind is how far the latest timestamp of a skipOld is behind our clock.
	behind time.Duration
	// kubeletFailed reports that the kubelet could not read its containers' usage.
	kubeletFailed bool
}

func (s *parseStats) skip(reason skipReason, line []byte) {
	if s.example == "" {
		s.example = string(line[:min(len(line), exampleLength)])
	}
	s.skipped[reason]++
}

// reasons returns the set of reasons, one bit each.
func (s *parseStats) reasons() (set uint32) {
	for reason, n := range s.skipped {
		if n > 0 {
			set |= 1 << reason
		}
	}
	return set
}

// String lists the reasons with their counts.
func (s *parseStats) String() string {
	var counts []string
	for reason, n := range s.skipped {
		if n > 0 {
			counts = append(counts, fmt.Sprintf("%s: %d", skipReason(reason), n))
		}
	}
	return strings.Join(counts, ", ")
}
