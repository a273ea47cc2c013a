// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"image/color"
	"os"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Size of the picture, and its resolution: twice the displayed one.
const (
	pictureWidth  = 10.5 * vg.Inch
	pictureHeight = 4.8 * vg.Inch
	pictureDPI    = 192
)

var (
	// Watching has its own color; polling has shades of another, darker if more frequent.
	watchColor = color.RGBA{R: 0x1b, G: 0x7f, B: 0x5c, A: 0xff}
	pollColors = []color.RGBA{{R: 0xf2, G: 0xb1, B: 0x34, A: 0xff}, {R: 0xe0, G: 0x7a, B: 0x2c, A: 0xff}, {R: 0xb0, G: 0x3a, B: 0x2e, A: 0xff}}
	ink        = color.RGBA{R: 0x33, G: 0x33, B: 0x33, A: 0xff}
	faint      = color.RGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
)

func (one *way) color(i int) color.Color {
	if one.interval == 0 {
		return watchColor
	}
	return pollColors[min(max(i-1, 0), len(pollColors)-1)]
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

	canvas := vgimg.NewWith(vgimg.UseWH(pictureWidth, pictureHeight), vgimg.UseDPI(pictureDPI), vgimg.UseBackgroundColor(color.White))
	whole := draw.New(canvas)
	const margin = 12
	whole = draw.Crop(whole, margin, -margin, margin, -margin)
	title := ink
	whole.FillText(draw.TextStyle{Color: title, Font: ages.Title.TextStyle.Font, XAlign: draw.XLeft, YAlign: draw.YTop, Handler: plot.DefaultTextHandler},
		vg.Point{X: whole.Min.X + 6, Y: whole.Max.Y},
		fmt.Sprintf("%d clients of %d pods each: how old their data is, and what that costs", f.clients, f.perWatch))
	whole = draw.Crop(whole, 0, 0, 0, -26)
	split := whole.Min.X + (whole.Max.X-whole.Min.X)*0.56
	left := draw.Crop(whole, 0, split-whole.Max.X-14, 0, 0)
	right := draw.Crop(whole, split-whole.Min.X+14, 0, 0, 0)
	half := (right.Max.Y - right.Min.Y) / 2
	ages.Draw(left)
	cpu.Draw(draw.Crop(right, 0, 0, half+8, 0))
	traffic.Draw(draw.Crop(right, 0, 0, 0, -half-8))

	out, err := os.Create(f.plot)
	if err != nil {
		return fmt.Errorf("create the picture: %w", err)
	}
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(out); err != nil {
		_ = out.Close()
		return fmt.Errorf("write the picture: %w", err)
	}
	return out.Close()
}

// newPlot returns a plot with the style of all panels.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 11
	p.Title.TextStyle.Font.Variant = "Sans"
	p.Title.TextStyle.Color = ink
	p.Title.Padding = 6
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color, axis.Tick.Label.Color, axis.Label.TextStyle.Color = ink, ink, ink, ink
		axis.Label.TextStyle.Font.Size, axis.Tick.Label.Font.Size = 10, 9
		axis.Label.TextStyle.Font.Variant, axis.Tick.Label.Font.Variant = "Sans", "Sans"
		axis.LineStyle.Width, axis.Tick.LineStyle.Width = 0.75, 0.75
	}
	return p
}

// plotAges draws the cumulative distribution of the ages of the clients' data.
func plotAges(ways []way) (*plot.Plot, error) {
	p := newPlot("Age of the data in clients' hands")
	p.Title.TextStyle.Font.Size = 11
	p.X.Label.Text = "age of the newest sample, seconds"
	p.Y.Label.Text = "share of looks that find it no older"
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 1
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
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
	p.Legend.TextStyle.Font.Size, p.Legend.TextStyle.Font.Variant, p.Legend.TextStyle.Color = 10, "Sans", ink
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
	p := newPlot(title)
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
		text.TextStyle[0].XAlign, text.TextStyle[0].Color = draw.XCenter, ink
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
