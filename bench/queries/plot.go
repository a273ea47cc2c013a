// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/picture"
)

const (
	pictureWidth  = 10.5 * vg.Inch
	pictureHeight = 5.2 * vg.Inch
)

// drawn are the rows in the picture.
var drawn = []string{p50, p95, queries, cpu, rss, cpuPrometheus, cpuAPIServer}

// ratios returns those of a kind to the column before serving's, for each number of autoscalers.
func (k kind) ratios(field []contestant, all []results) []picture.Ratio {
	field = k.of(field)
	var of []picture.Ratio
	for _, r := range all {
		for _, name := range drawn {
			if ratio, ok := (row{name: name}).ratio(r, field[len(field)-2].name); ok {
				of = append(of, picture.Ratio{
					Name: fmt.Sprintf("%s: %s", figures.Thousands(r.autoscalers), name), Value: ratio, Goal: k.goals[r.autoscalers][name],
				})
			}
		}
	}
	return of
}

// drawPicture draws the ratios of custom and of external metrics.
func drawPicture(path string, field []contestant, all map[string][]results) error {
	var panels []*plot.Plot
	for _, k := range kinds {
		p, err := picture.Ratios(k.ratios(field, all[k.name]))
		if err != nil {
			return fmt.Errorf("draw the ratios of %s: %w", k.name, err)
		}
		p.X.Label.Text = k.name
		panels = append(panels, p)
	}
	err := picture.Save(path, pictureWidth, pictureHeight, "Divided by prometheus-adapter's, by the number of autoscalers (line: goal)", func(whole draw.Canvas) {
		half := (whole.Max.X - whole.Min.X) / 2
		panels[0].Draw(draw.Crop(whole, 0, -half-7, 0, 0))
		panels[1].Draw(draw.Crop(whole, half+7, 0, 0, 0))
	})
	if err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return nil
}
