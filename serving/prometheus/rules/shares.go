// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// nameUnit is the length of a name in JSON from which on a metric counts as several in a list. Beside
// its name a metric takes up to 160 bytes of the aggregated discovery document: valueapi.MaxDiscovered
// custom metrics, in two versions, and as many external ones are within 1 MiB.
const nameUnit = 44

// cost returns how many metrics one with this name counts as.
func cost(name string) int {
	size := len(name) + len(`""`)
	for _, c := range name {
		if strings.ContainsRune("<>&\"\\/\u2028\u2029", c) {
			size += len(`\u003c`) - 1
		}
	}
	return 1 + size/nameUnit
}

// shareKey identifies the metrics that are listed as one share: of a rule, or of a namespace that
// declares them, for one resource.
type shareKey struct {
	rule      *activeRule
	position  int
	namespace string
	resource  schema.GroupResource
}

// share has the first names in order, what they cost, and the number of metrics that are not listed.
type share struct {
	shareKey
	names           []string
	full            bool
	cost, remaining int
}

func (s *share) compare(o *share) int {
	return cmp.Or(cmp.Compare(s.cost, o.cost), cmp.Compare(s.position, o.position), strings.Compare(s.namespace, o.namespace), strings.Compare(s.resource.String(), o.resource.String()))
}

type shares map[shareKey]*share

// add adds a metric. At most so many names are listed: it sorts at most twice as many at a time, as
// there may be a million of which few are wanted.
func (s shares) add(key shareKey, name string, most int) {
	of := s[key]
	if of == nil {
		of = &share{shareKey: key}
		s[key] = of
	}
	of.remaining++
	if most <= 0 || of.full && name >= of.names[most-1] {
		return
	}
	if of.names = append(of.names, name); len(of.names)-most >= most {
		slices.Sort(of.names)
		of.names, of.full = of.names[:most], true
	}
}

// divide returns metrics, in order, that cost at most budget together, and what is left of it. Each
// share may have the same part, the cheapest first, and what it leaves is for the others. It adds the
// numbers of metrics that are left out to omitted.
func (s shares) divide(budget int, omitted map[*activeRule]int) (listed []metricKey, left int) {
	all := slices.Collect(maps.Values(s))
	for _, of := range all {
		slices.Sort(of.names)
		for _, name := range of.names {
			of.cost += cost(name)
		}
	}
	slices.SortFunc(all, (*share).compare)
	for i, of := range all {
		part := budget / (len(all) - i)
		for _, name := range of.names {
			size := cost(name)
			if size > part {
				break
			}
			part, budget, of.remaining = part-size, budget-size, of.remaining-1
			listed = append(listed, metricKey{of.resource, name})
		}
		if of.remaining > 0 {
			omitted[of.rule] += of.remaining
		}
	}
	slices.SortFunc(listed, metricKey.compare)
	return listed, budget
}
