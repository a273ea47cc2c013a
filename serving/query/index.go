// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// index finds the samples of an answer by the value of a label. It is made when it is
// first wanted, once for all who share the answer: each of them wants a few objects of
// what may be all of a namespace.
type index struct {
	mu      sync.Mutex
	byLabel map[string][]labelled
}

// labelled is the place of a sample, and the value of a label that it has.
type labelled struct {
	value string
	place int
}

// labelled returns the samples that have a label, ordered by its value, and those of
// one value in the source's order.
func (a *Result) labelled(label string) []labelled {
	a.index.mu.Lock()
	defer a.index.mu.Unlock()
	if all, made := a.index.byLabel[label]; made {
		return all
	}
	all := make([]labelled, 0, len(a.Samples))
	for i := range a.Samples {
		if value := a.Samples[i].Labels[label]; value != "" {
			all = append(all, labelled{value, i})
		}
	}
	slices.SortFunc(all, func(a, b labelled) int { return cmp.Or(strings.Compare(a.value, b.value), a.place-b.place) })
	if a.index.byLabel == nil {
		// Rules decide which labels name objects: there are one or two of them.
		a.index.byLabel = map[string][]labelled{}
	}
	a.index.byLabel[label] = all
	return all
}

// of returns the samples whose label has one of the values, in their order.
func (a *Result) of(label string, values []string) []Sample {
	all := a.labelled(label)
	samples := make([]Sample, 0, min(len(all), len(values)))
	for _, value := range values {
		i, _ := slices.BinarySearchFunc(all, value, func(l labelled, value string) int { return strings.Compare(l.value, value) })
		for ; i < len(all) && all[i].value == value; i++ {
			samples = append(samples, a.Samples[all[i].place])
		}
	}
	return samples
}
