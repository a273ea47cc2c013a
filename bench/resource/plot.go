// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/picture"
)

const (
	pictureWidth  = 10.5 * vg.Inch
	pictureHeight = 5.6 * vg.Inch
	// goalNodes is the scale for which the goals are.
	goalNodes = 1000
	// growthFrom and growthTo are the scales between which growth is an exponent.
	growthFrom, growthTo = 1000, 5000
)

// colors of the contestants.
var colors = map[string]color.RGBA{kindServing: picture.Ours, kindMetricsServer: picture.Theirs[1], kindBare: {R: 0x88, G: 0x88, B: 0x88, A: 0xff}}

// bars returns the ratios of a scale, in the order of the table.
func bars(r record) []picture.Ratio {
	var all []picture.Ratio
	for _, row := range rows {
		ours, measured := r.Medians[row.name][kindServing]
		theirs := r.Medians[row.name][kindMetricsServer]
		if row.plain || !measured || theirs == 0 {
			continue
		}
		all = append(all, picture.Ratio{Name: row.name, Value: ours / theirs, Goal: row.goal})
	}
	return all
}

// point is a figure at a number of nodes.
type point struct{ nodes, value float64 }

// growth returns a contestant's values of a figure by scale.
func growth(records []record, contestant, figure string) []point {
	var all []point
	for _, r := range records {
		if v, ok := r.Medians[figure][contestant]; ok && v > 0 {
			all = append(all, point{float64(r.Nodes), v})
		}
	}
	return all
}

// exponent returns e such that values grow with the number of nodes to the power of e between
// two scales, and false if one was not measured.
func exponent(points []point, from, to float64) (float64, bool) {
	at := func(nodes float64) (float64, bool) {
		i := slices.IndexFunc(points, func(p point) bool { return p.nodes == nodes })
		if i < 0 {
			return 0, false
		}
		return points[i].value, true
	}
	low, hasLow := at(from)
	high, hasHigh := at(to)
	if !hasLow || !hasHigh {
		return 0, false
	}
	return math.Log(high/low) / math.Log(to/from), true
}

// drawn selects the records for the picture: one for the ratios, at the scale of the goals or
// the largest, and all of the same machine for growth.
func drawn(all []section) (ratios record, same []record) {
	for _, s := range all {
		if s.Data.Medians != nil && (ratios.Nodes != goalNodes || s.Data.Nodes == goalNodes) {
			ratios = s.Data
		}
	}
	for _, s := range all {
		if s.Data.Medians != nil && s.Data.Machine == ratios.Machine {
			same = append(same, s.Data)
		}
	}
	return ratios, same
}

// drawPicture draws the ratios beside the growth.
func drawPicture(path string, all []section) error {
	ratios, same := drawn(all)
	if ratios.Nodes == 0 {
		return nil
	}
	left, err := picture.Ratios(bars(ratios))
	if err != nil {
		return fmt.Errorf("draw the ratios: %w", err)
	}
	cpu, err := plotGrowth("CPU without requests, mCPU", same, cpuIdle, 1000)
	if err != nil {
		return fmt.Errorf("draw the growth of CPU: %w", err)
	}
	memory, err := plotGrowth("RSS without requests, MiB", same, rssSteady, 1.0/(1<<20))
	if err != nil {
		return fmt.Errorf("draw the growth of memory: %w", err)
	}
	title := fmt.Sprintf("Divided by metrics-server's, %s nodes (line: goal)", figures.Thousands(ratios.Nodes))
	err = picture.Save(path, pictureWidth, pictureHeight, title, func(whole draw.Canvas) {
		split := (whole.Max.X - whole.Min.X) * 0.58
		right := draw.Crop(whole, split+14, 0, 0, 0)
		half := (right.Max.Y - right.Min.Y) / 2
		left.Draw(draw.Crop(whole, 0, split-(whole.Max.X-whole.Min.X)-14, 0, 0))
		cpu.Draw(draw.Crop(right, 0, 0, half+8, 0))
		memory.Draw(draw.Crop(right, 0, 0, 0, -half-8))
	})
	if err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return nil
}

// plotGrowth draws a figure of each contestant against the number of nodes, both logarithmic.
func plotGrowth(title string, records []record, figure string, scale float64) (*plot.Plot, error) {
	p := picture.NewPlot(title)
	p.X.Label.Text = "nodes"
	lowest, highest := math.Inf(1), 0.0
	var ticks plot.ConstantTicks
	for _, r := range records {
		ticks = append(ticks, plot.Tick{Value: float64(r.Nodes), Label: figures.Thousands(r.Nodes)})
	}
	for _, contestant := range []string{kindMetricsServer, kindServing, kindBare} {
		points := growth(records, contestant, figure)
		if len(points) == 0 {
			continue
		}
		var line plotter.XYs
		for _, one := range points {
			line = append(line, plotter.XY{X: one.nodes, Y: one.value * scale})
			lowest, highest = min(lowest, one.value*scale), max(highest, one.value*scale)
		}
		drawn, marks, err := plotter.NewLinePoints(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", contestant, err)
		}
		drawn.Color, drawn.Width = colors[contestant], 2
		marks.Color, marks.Shape, marks.Radius = colors[contestant], draw.CircleGlyph{}, 3
		p.Add(drawn, marks)
		label := contestant
		if e, ok := exponent(points, growthFrom, growthTo); ok {
			label = fmt.Sprintf("%s, exponent %.2f", contestant, e)
		}
		p.Legend.Add(label, drawn)
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks, plot.LogTicks{Prec: -1}
	// Logarithmic axes need different and positive limits; the legend is above the lines.
	p.X.Min, p.X.Max = float64(records[0].Nodes)*0.8, float64(records[len(records)-1].Nodes)*1.4
	p.Y.Min, p.Y.Max = lowest*0.7, highest*6
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.Padding, p.Legend.ThumbnailWidth = true, true, 8, 3, 18
	return p, nil
}
