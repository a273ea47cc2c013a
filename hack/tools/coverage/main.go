// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command coverage prints the coverage of the watch's code by unit tests, for the parts
// in KEP-1013, and fails if it is below the minimum there.
//
// Usage: go -C hack/tools run ./coverage PROFILE, of go test -coverprofile.
package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/cover"
)

const module = "github.com/metricsbackend/metrics-backend-operator/"

// part is code whose coverage is one figure.
type part struct {
	name string
	// least is the minimum, in percent of statements.
	least float64
	// files are patterns of path.Match, relative to the module.
	files []string
}

// parts of the watch, as in KEP-1013, "Unit tests".
var parts = []part{
	{name: "the stream", least: 85, files: []string{"serving/stream/*.go"}},
	{name: "the parsing of options", least: 90, files: []string{
		"serving/resourcemetrics/page.go", "serving/resourcemetrics/selection.go", "serving/resourcemetrics/watch.go",
		"serving/stream/selection.go",
	}},
	{name: "the encoding of events", least: 80, files: []string{
		"serving/samplestore/encodings.go", "serving/resourcemetrics/encoding.go", "serving/resourcemetrics/event*.go",
		"serving/resourcemetrics/fragment_*.go", "serving/resourcemetrics/object.go", "serving/resourcemetrics/table.go",
	}},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go -C hack/tools run ./coverage PROFILE")
		os.Exit(2)
	}
	// ParseProfiles merges the blocks of several packages' tests.
	profiles, err := cover.ParseProfiles(os.Args[1])
	if err == nil {
		var report string
		report, err = judge(profiles, parts)
		fmt.Print(report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "coverage of the watch:", err)
		os.Exit(1)
	}
}

// judge returns a report with a line for each part, and for each of its files below the
// minimum. The error names parts below the minimum, and patterns without a file.
func judge(profiles []*cover.Profile, parts []part) (string, error) {
	var wrong []string
	var report strings.Builder
	report.WriteString("  Statements of the watch that unit tests run (least figures: KEP-1013)\n")
	for _, part := range parts {
		var all count
		var low []string
		for _, pattern := range part.files {
			found := false
			for _, profile := range profiles {
				name := strings.TrimPrefix(profile.FileName, module)
				matched, err := path.Match(pattern, name)
				if err != nil {
					return "", fmt.Errorf("pattern %s: %w", pattern, err)
				}
				if !matched {
					continue
				}
				found = true
				one := countOf(profile)
				all.add(one)
				if one.percent() < part.least {
					low = append(low, fmt.Sprintf("      %5.1f %%  %s\n", one.percent(), name))
				}
			}
			if !found {
				wrong = append(wrong, fmt.Sprintf("the profile has no file %s: update the files of %s in hack/tools/coverage", pattern, part.name))
			}
		}
		fmt.Fprintf(&report, "    %5.1f %%  %s (at least %.0f %%; %d of %d)\n", all.percent(), part.name, part.least, all.run, all.statements)
		slices.Sort(low)
		for _, line := range low {
			report.WriteString(line)
		}
		if all.percent() < part.least {
			wrong = append(wrong, fmt.Sprintf("%.1f %% of %s, want %.0f %%: add tests", all.percent(), part.name, part.least))
		}
	}
	if len(wrong) > 0 {
		return report.String(), errors.New(strings.Join(wrong, "; "))
	}
	return report.String(), nil
}

// count is a number of statements.
type count struct{ statements, run int }

func countOf(profile *cover.Profile) count {
	var c count
	for _, block := range profile.Blocks {
		c.statements += block.NumStmt
		if block.Count > 0 {
			c.run += block.NumStmt
		}
	}
	return c
}

func (c *count) add(other count) {
	c.statements += other.statements
	c.run += other.run
}

func (c count) percent() float64 {
	if c.statements == 0 {
		return 0
	}
	return 100 * float64(c.run) / float64(c.statements)
}
