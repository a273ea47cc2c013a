// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"io"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

var tones = map[Outcome]output.Tone{Pass: output.Good, Warn: output.Warning, Skip: output.Faint, Fail: output.Bad, Error: output.Bad}

// printText writes a line for each result, followed by its remedy and the next command.
func printText(w io.Writer, report *Report) error {
	if _, err := fmt.Fprintf(w, "%s at %s, expected: %s (%s)\n\n", group, report.Cluster, listed(report.Expected), report.ExpectedBy); err != nil {
		return err
	}
	var rows [][]output.Cell
	for _, check := range report.Checks {
		tone := tones[check.Outcome]
		rows = append(rows, []output.Cell{
			{Text: strings.ToUpper(string(check.Outcome)), Tone: tone}, output.Text(check.ID), output.Text(check.Subject), output.Text(check.Message),
		})
		if check.Remedy != "" {
			rows = append(rows, []output.Cell{output.Text(""), {Text: "to do: " + check.Remedy, Tone: tone}})
		}
		if check.Command != "" {
			rows = append(rows, []output.Cell{output.Text(""), output.NextCommand(check.Command)})
		}
	}
	if err := output.Rows(w, rows...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", summary(report))
	return err
}

func summary(report *Report) string {
	parts := []string{fmt.Sprintf("%d passed", report.count(Pass))}
	for _, outcome := range []struct {
		outcome Outcome
		words   string
	}{{Fail, "failed"}, {Error, "could not be run"}, {Warn, "with a warning"}, {Skip, "skipped"}} {
		if n := report.count(outcome.outcome); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, outcome.words))
		}
	}
	return strings.Join(parts, ", ")
}
