// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/bench/document"
	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
)

// blockName is in the comments between which results are written.
const blockName = "resource"

// record has the results of one scale.
type record struct {
	Nodes, Pods int
	// Faults is set for the table of the scenarios other than healthy, which has no medians.
	Faults bool `json:",omitempty"`
	// Machine is its processors; only results of the same machine are drawn together.
	Machine string
	// Medians by figure and contestant, if the kubelets are healthy.
	Medians map[string]map[string]float64 `json:",omitempty"`
}

// section is the results of one scale, with their table.
type section struct {
	Data record
	Text string
}

// recordable tells whether the results are of metrics-server and one build of serving, and
// not of a comparison of builds.
func recordable(field []contestant) bool {
	builds, peers := 0, 0
	for _, one := range field {
		switch one.kind {
		case kindServing:
			builds++
			if one.name != kindServing {
				return false
			}
		case kindMetricsServer:
			peers++
		}
	}
	return builds == 1 && peers == 1
}

// sections returns what is written of a run: the table with healthy kubelets, and that of the
// other scenarios.
func sections(f *flags, pods int, machine string, caption func([]group) string, field []contestant, groups []group) []section {
	var well, faulty []group
	for _, g := range groups {
		if g.scenario.name == healthy {
			well = append(well, g)
		} else {
			faulty = append(faulty, g)
		}
	}
	scale := fmt.Sprintf("%s nodes and %s pods", figures.Thousands(f.nodes), figures.Thousands(pods))
	var all []section
	if len(well) > 0 {
		data := record{Nodes: f.nodes, Pods: pods, Machine: machine, Medians: well[0].results.medians(field)}
		all = append(all, section{Data: data, Text: fmt.Sprintf("### %s\n\n%s\n\n%s", scale, caption(well), figures.Markdown(grouped(field, well)))})
	}
	if len(faulty) > 0 {
		data := record{Nodes: f.nodes, Pods: pods, Machine: machine, Faults: true}
		all = append(all, section{Data: data, Text: fmt.Sprintf("### %s, kubelets that fail, hang or are slow\n\n%s\n\n%s", scale, caption(faulty), figures.Markdown(titled(field, faulty)))})
	}
	return all
}

// medians returns those of all figures that have a value.
func (r results) medians(field []contestant) map[string]map[string]float64 {
	all := map[string]map[string]float64{}
	for _, row := range rows {
		of := map[string]float64{}
		for _, one := range field {
			if v := r.of(one.name, row.name); len(v) > 0 {
				of[one.name] = figures.Median(v)
			}
		}
		if len(of) > 0 {
			all[row.name] = of
		}
	}
	return all
}

// merge returns the old sections with new ones in the place of those of the same scale,
// ordered by scale.
func merge(old, measured []section) []section {
	same := func(a, b section) bool { return a.Data.Nodes == b.Data.Nodes && a.Data.Faults == b.Data.Faults }
	kept := slices.DeleteFunc(slices.Clone(old), func(o section) bool {
		return slices.ContainsFunc(measured, func(m section) bool { return same(o, m) })
	})
	all := slices.Concat(kept, measured)
	slices.SortFunc(all, func(a, b section) int {
		if c := cmp.Compare(a.Data.Nodes, b.Data.Nodes); c != 0 || a.Data.Faults == b.Data.Faults {
			return c
		}
		if b.Data.Faults {
			return -1
		}
		return 1
	})
	return all
}

// write writes the sections into the document and into a file beside it, from which the next
// run takes those of other scales, and draws the picture.
func write(f *flags, measured []section) error {
	content, err := os.ReadFile(f.document)
	if err != nil {
		return fmt.Errorf("read the document to which results are written: %w", err)
	}
	data := strings.TrimSuffix(f.document, filepath.Ext(f.document)) + ".json"
	var old []section
	encoded, err := os.ReadFile(data)
	if err == nil {
		err = json.Unmarshal(encoded, &old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read earlier results from %s: %w", data, err)
	}
	all := merge(old, measured)
	picture, err := filepath.Rel(filepath.Dir(f.document), f.plot)
	if err != nil {
		return fmt.Errorf("name the picture in %s: %w", f.document, err)
	}
	results := "## metrics.k8s.io compared with metrics-server\n\n" +
		"Both scrape the same fake kubelets on the same machine, one at a time. Ratios are those of the medians to metrics-server's.\n\n" +
		"![Ratios to metrics-server with the goals, and growth of CPU and RSS with the number of nodes](" + filepath.ToSlash(picture) + ")"
	for _, s := range all {
		results += "\n\n" + strings.Trim(s.Text, "\n")
	}
	changed, err := document.Replace(string(content), blockName, results)
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := drawPicture(f.plot, all); err != nil {
		return err
	}
	if encoded, err = json.MarshalIndent(all, "", "  "); err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.WriteFile(data, append(encoded, '\n'), 0o644); err != nil { //nolint:gosec // Beside a document.
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.WriteFile(f.document, []byte(changed), 0o644); err != nil { //nolint:gosec // A document.
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}
