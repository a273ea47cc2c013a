// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"image/color"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/metricsbackend/metrics-backend-operator/bench/picture"
)

// Size of the picture.
const (
	pictureWidth  = 10.5 * vg.Inch
	pictureHeight = 4.8 * vg.Inch
)

func (one *way) color(i int) color.Color {
	if one.interval == 0 {
		return picture.Ours
	}
	return picture.Theirs[min(max(i-1, 0), len(picture.Theirs)-1)]
}

// plotComparison draws the ages of the clients' data, and the costs.
func plotComparison(f *flags, ways []way) error {
	ages, err := plotAges(ways)
	if err != nil {
		return fmt.Errorf("draw the ages: %w", err)
	}
	cpu, err := plotBars("CPU of the server, mCPU", ways, func(one *way) float64 { return one.millicores(one.cpu) })
	if err != nil {
		return fmt.Errorf("draw the CPU: %w", err)
	}
	traffic, err := plotBars("on the wire, MB a second", ways, func(one *way) float64 { return float64(one.bytes) / one.span.Seconds() / 1e6 })
	if err != nil {
		return fmt.Errorf("draw the bytes: %w", err)
	}

	title := fmt.Sprintf("%d clients of %d pods each: how old their data is, and what that costs", f.clients, f.perWatch)
	return picture.Save(f.plot, pictureWidth, pictureHeight, title, func(whole draw.Canvas) {
		split := whole.Min.X + (whole.Max.X-whole.Min.X)*0.56
		left := draw.Crop(whole, 0, split-whole.Max.X-14, 0, 0)
		right := draw.Crop(whole, split-whole.Min.X+14, 0, 0, 0)
		half := (right.Max.Y - right.Min.Y) / 2
		ages.Draw(left)
		cpu.Draw(draw.Crop(right, 0, 0, half+8, 0))
		traffic.Draw(draw.Crop(right, 0, 0, 0, -half-8))
	})
}

// plotAges draws the cumulative distribution of the ages of the clients' data.
func plotAges(ways []way) (*plot.Plot, error) {
	p := picture.NewPlot("Age of the data in clients' hands")
	p.Title.TextStyle.Font.Size = 11
	p.X.Label.Text = "age of the newest sample, seconds"
	p.Y.Label.Text = "share of looks that find it no older"
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 1
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = picture.Faint, picture.Faint
	p.Add(grid)
	oldest := time.Duration(0)
	for i := range ways {
		one := &ways[i]
		ages, shares := one.ages.Distribution()
		var line plotter.XYs
		for j := range ages {
			if j%5 == 0 {
				line = append(line, plotter.XY{X: ages[j].Seconds(), Y: shares[j]})
			}
		}
		drawn, err := plotter.NewLine(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		drawn.Color, drawn.Width = one.color(i), 2
		p.Add(drawn)
		p.Legend.Add(one.label(), drawn)
		oldest = max(oldest, one.ages.Quantile(0.995))
	}
	p.X.Max = oldest.Seconds()
	p.Legend.XOffs, p.Legend.YOffs, p.Legend.Padding, p.Legend.ThumbnailWidth = -8, 10, 3, 18
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0 %"}, {Value: 0.25, Label: "25 %"}, {Value: 0.5, Label: "50 %"}, {Value: 0.75, Label: "75 %"}, {Value: 1, Label: "100 %"}}
	return p, nil
}

func (one *way) label() string {
	if one.interval == 0 {
		return "watch"
	}
	return "poll each " + one.interval.String()
}

// plotBars draws a bar for each way, with its value.
func plotBars(title string, ways []way, value func(*way) float64) (*plot.Plot, error) {
	p := picture.NewPlot(title)
	p.HideY()
	most := 0.0
	var names []string
	for i := range ways {
		one := &ways[i]
		v := value(one)
		most = max(most, v)
		names = append(names, one.label())
		bar, err := plotter.NewBarChart(plotter.Values{v}, 34)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), one.color(i), 0
		text, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: float64(i), Y: v}}, Labels: []string{number(v)}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		text.Offset = vg.Point{Y: 3}
		text.TextStyle[0].XAlign, text.TextStyle[0].Color = draw.XCenter, picture.Ink
		text.TextStyle[0].Font.Size, text.TextStyle[0].Font.Variant = 10, "Sans"
		p.Add(bar, text)
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.6, float64(len(ways))-0.4
	p.X.Tick.LineStyle.Width = 0
	p.Y.Min, p.Y.Max = 0, most*1.2
	return p, nil
}

func number(v float64) string {
	switch {
	case v < 1:
		return fmt.Sprintf("%.2f", v)
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
