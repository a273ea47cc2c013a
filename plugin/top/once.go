// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// printOnce writes what kubectl top writes.
func (v *view) printOnce(out io.Writer) error {
	w := printers.GetNewTabWriter(out)
	names := v.nameColumns()
	write := func(cells []string) {
		// kubectl ends each cell with a tab, the last one too.
		_, _ = fmt.Fprintln(w, tabbed(cells))
	}
	if !v.noHeaders {
		var heads []string
		for i := range names {
			heads = append(heads, names[i].head)
		}
		if heads = append(heads, cpuHead); v.percentages {
			heads = append(heads, cpuPercentHead)
		}
		if heads = append(heads, memoryHead); v.percentages {
			heads = append(heads, memoryPercentHead)
		}
		write(heads)
	}
	rows := v.table.sorted(v.by)
	for _, r := range rows {
		var cells []string
		for i := range names {
			cells = append(cells, names[i].of(&r.id))
		}
		available := v.available[r.id.name]
		if cells = append(cells, cores(r.cpu)); v.percentages {
			cells = append(cells, percent(r.cpu, available.cpu))
		}
		if cells = append(cells, mebibytes(r.memory)); v.percentages {
			cells = append(cells, percent(r.memory, available.memory))
		}
		write(cells)
	}
	for _, name := range v.withoutMetrics() {
		write([]string{name, unknown, unknown, unknown, unknown})
	}
	return w.Flush()
}

// withoutMetrics are the nodes that there are no metrics of.
func (v *view) withoutMetrics() []string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(v.available)) {
		if _, has := v.table.objects[name]; !has {
			missing = append(missing, name)
		}
	}
	return missing
}

func tabbed(cells []string) string {
	var out strings.Builder
	for _, cell := range cells {
		out.WriteString(output.Line(cell) + "\t")
	}
	return out.String()
}
