// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package picture has the style of the plots in docs/reference/images, and writes them.
package picture

import (
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// dpi is the resolution: twice the displayed one.
const dpi = 192

// Colors of all pictures. Ours is of what the picture is about, Theirs are of what it is
// compared with, the last one strongest.
var (
	Ours   = color.RGBA{R: 0x1b, G: 0x7f, B: 0x5c, A: 0xff}
	Theirs = []color.RGBA{{R: 0xf2, G: 0xb1, B: 0x34, A: 0xff}, {R: 0xe0, G: 0x7a, B: 0x2c, A: 0xff}, {R: 0xb0, G: 0x3a, B: 0x2e, A: 0xff}}
	Ink    = color.RGBA{R: 0x33, G: 0x33, B: 0x33, A: 0xff}
	Faint  = color.RGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
)

// NewPlot returns a plot with the style of all panels.
func NewPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 11
	p.Title.TextStyle.Font.Variant = "Sans"
	p.Title.TextStyle.Color = Ink
	p.Title.Padding = 6
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color, axis.Tick.Label.Color, axis.Label.TextStyle.Color = Ink, Ink, Ink, Ink
		axis.Label.TextStyle.Font.Size, axis.Tick.Label.Font.Size = 10, 9
		axis.Label.TextStyle.Font.Variant, axis.Tick.Label.Font.Variant = "Sans", "Sans"
		axis.LineStyle.Width, axis.Tick.LineStyle.Width = 0.75, 0.75
	}
	p.Legend.TextStyle.Font.Size, p.Legend.TextStyle.Font.Variant, p.Legend.TextStyle.Color = 10, "Sans", Ink
	return p
}

// Save draws a picture with a title, and writes it as PNG. The function draws its panels.
func Save(path string, width, height vg.Length, title string, panels func(draw.Canvas)) error {
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))
	const margin = 12
	whole := draw.Crop(draw.New(canvas), margin, -margin, margin, -margin)
	style := NewPlot("").Title.TextStyle
	style.XAlign, style.YAlign, style.Handler = draw.XLeft, draw.YTop, plot.DefaultTextHandler
	whole.FillText(style, vg.Point{X: whole.Min.X + 6, Y: whole.Max.Y}, title)
	panels(draw.Crop(whole, 0, 0, 0, -26))

	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create the picture: %w", err)
	}
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(out); err != nil {
		_ = out.Close()
		return fmt.Errorf("write the picture: %w", err)
	}
	return out.Close()
}
