// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
)

// Ratio is a figure divided by that of what it is compared with. Goal is the largest value that is
// aimed at, 0 for none.
type Ratio struct {
	Name        string
	Value, Goal float64
}

func (r Ratio) color() color.RGBA {
	switch {
	case r.Goal == 0:
		return color.RGBA{R: 0xaa, G: 0xaa, B: 0xaa, A: 0xff}
	case !figures.Misses(r.Value, r.Goal):
		return Ours
	}
	return Theirs[1]
}

// Ratios draws a horizontal bar for each ratio, the first one on top, and a line at its goal.
func Ratios(all []Ratio) (*plot.Plot, error) {
	p := NewPlot("")
	longest := 1.0
	var names []string
	for i, b := range slices.Backward(all) {
		y := float64(len(all) - 1 - i)
		names = append(names, strings.ReplaceAll(b.Name, "`", ""))
		longest = max(longest, b.Value, b.Goal)
		drawn, err := plotter.NewBarChart(plotter.Values{b.Value}, 11)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		drawn.Horizontal, drawn.XMin, drawn.Color, drawn.LineStyle.Width = true, y, b.color(), 0
		text, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: max(b.Value, b.Goal), Y: y}}, Labels: []string{figures.Quotient.Format(b.Value)}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		text.Offset = vg.Point{X: 4}
		text.TextStyle[0].YAlign, text.TextStyle[0].Color = draw.YCenter, Ink
		text.TextStyle[0].Font.Size, text.TextStyle[0].Font.Variant = 9, "Sans"
		p.Add(drawn, text)
		if b.Goal == 0 {
			continue
		}
		goal, err := plotter.NewLine(plotter.XYs{{X: b.Goal, Y: y - 0.45}, {X: b.Goal, Y: y + 0.45}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		goal.Color, goal.Width = Ink, 1.5
		p.Add(goal)
	}
	p.NominalY(names...)
	p.Y.Tick.LineStyle.Width = 0
	p.Y.Min, p.Y.Max = -0.6, float64(len(all))-0.4
	p.X.Min, p.X.Max = 0, longest*1.12
	return p, nil
}
