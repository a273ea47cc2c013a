// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Mebibytes formats a number of bytes.
func Mebibytes(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

// Milliseconds formats a duration with one decimal.
func Milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// Quantiles formats quantiles in milliseconds.
func Quantiles(d interface{ Quantile(float64) time.Duration }, qs ...float64) string {
	var all []string
	for _, q := range qs {
		all = append(all, Milliseconds(d.Quantile(q)))
	}
	return strings.Join(all, ", ")
}

// Markdown returns rows as a Markdown table for a file. The first row is the head.
func Markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// Table writes rows of a Markdown table. The first row is the head.
func Table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', tabwriter.Debug)
	for i, row := range rows {
		_, _ = fmt.Fprintln(w, "\t "+strings.Join(row, "\t ")+"\t")
		if i == 0 {
			_, _ = fmt.Fprintln(w, strings.Repeat("\t---", len(row))+"\t")
		}
	}
	_ = w.Flush()
	_, _ = fmt.Fprintln(out)
}
