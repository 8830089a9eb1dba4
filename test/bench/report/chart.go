// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// shown are the rows of the chart, from bottom to top.
var shown = []struct{ work, size, title string }{
	{"ObserveAndCheck", "owners=1000/goroutines=2", "observe and check, 2 goroutines"},
	{"SlowStart", "calls=500", "slow start of 500 calls"},
	{"Status", "fleet=lean/pods=10000", "status of 10,000 pods"},
	{"Status", "fleet=cached/pods=10000", "status of 10,000 cached pods"},
	{"Claim", "fleet=lean/pods=10000", "claim 10,000 pods"},
	{"Claim", "fleet=cached/pods=10000", "claim 10,000 cached pods"},
	{"Pass", "fleet=cached/pods=100", "a whole pass, 100 cached pods, nothing to do"},
	{"Pass", "fleet=cached/pods=10000", "a whole pass, 10,000 cached pods, nothing to do"},
	{"Hold", "fleet=lean/pods=10000", "plan: all of 10,000 pods stay"},
	{"Hold", "fleet=cached/pods=10000", "plan: all of 10,000 cached pods stay"},
	{"Manage", "fleet=lean/pods=5000", "plan: 500 of 5,000 pods go"},
	{"Manage", "fleet=cached/pods=5000", "plan: 500 of 5,000 cached pods go"},
	{"Choose", "fleet=lean/pods=5000", "choose 500 of 5,000 pods"},
	{"Choose", "fleet=cached/pods=5000", "choose 500 of 5,000 cached pods"},
}

var sides = []struct {
	name, legend string
	color        color.Color
	shape        draw.GlyphDrawer
}{
	{kubernetes, "Kubernetes 1.36.3", color.RGBA{R: 0x32, G: 0x6c, B: 0xe5, A: 0xff}, draw.CircleGlyph{}},
	{ours, "replicakit", color.RGBA{R: 0xd9, G: 0x48, B: 0x1c, A: 0xff}, draw.CircleGlyph{}},
	{floor, "floor", color.Gray{Y: 0x60}, draw.PlusGlyph{}},
}

// draw writes the chart: a line for each work, with the time of each side on it.
func (r *results) draw(file string) error {
	p := plot.New()
	p.Title.Text = "Time, and how many times as fast as Kubernetes"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(decades())
	p.Add(plotter.NewGrid())
	points := make(map[string]plotter.XYs)
	var names, ratios []string
	for _, want := range shown {
		row := r.find(want.work, want.size)
		if row == nil {
			continue
		}
		y := float64(len(names))
		names = append(names, want.title)
		for _, s := range sides {
			if x, ok := row.of(s.name, seconds); ok {
				points[s.name] = append(points[s.name], plotter.XY{X: x, Y: y})
			}
		}
		ratios = append(ratios, row.times(kubernetes, ours))
	}
	p.NominalY(names...)
	if err := addSides(p, points, ratios); err != nil {
		return err
	}
	p.X.Min, p.X.Max = 1e-9, 1
	p.Y.Min, p.Y.Max = -0.6, float64(len(names))
	return p.Save(vg.Points(760), vg.Points(60+32*float64(len(names))), file)
}

// drawGrowth writes the chart of a whole pass: the time of each side by the number of pods.
func (r *results) drawGrowth(file string) error {
	p := plot.New()
	p.Title.Text = "A whole pass with nothing to do, by the number of cached pods"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(ticks(1, "1", "10", "100", "1,000", "10,000", "100,000"))
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.ConstantTicks(decades())
	p.Add(plotter.NewGrid())
	points := make(map[string]plotter.XYs)
	var ratios []string
	for _, row := range r.rows {
		if row.work != "Pass" {
			continue
		}
		for _, s := range sides {
			if y, ok := row.of(s.name, seconds); ok {
				points[s.name] = append(points[s.name], plotter.XY{X: row.count, Y: y})
			}
		}
		ratios = append(ratios, row.times(kubernetes, ours))
	}
	for _, s := range sides {
		if len(points[s.name]) == 0 {
			continue
		}
		line, err := plotter.NewLine(points[s.name])
		if err != nil {
			return err
		}
		line.Color = s.color
		p.Add(line)
	}
	if err := addSides(p, points, ratios); err != nil {
		return err
	}
	p.X.Min, p.X.Max = 5, 30_000
	p.Y.Min, p.Y.Max = 1e-5, 1e-1
	return p.Save(vg.Points(760), vg.Points(320), file)
}

// addSides adds the points of each side, with the ratios at ours.
func addSides(p *plot.Plot, points map[string]plotter.XYs, ratios []string) error {
	for _, s := range sides {
		if len(points[s.name]) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(points[s.name])
		if err != nil {
			return err
		}
		scatter.GlyphStyle = draw.GlyphStyle{Color: s.color, Radius: vg.Points(4), Shape: s.shape}
		p.Add(scatter)
		p.Legend.Add(s.legend, scatter)
	}
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: points[ours], Labels: ratios})
	if err != nil {
		return err
	}
	labels.Offset = vg.Point{X: vg.Points(-12), Y: vg.Points(7)}
	p.Add(labels)
	p.Legend.Top, p.Legend.Left = false, false
	p.Legend.TextStyle.Font = font.From(p.Legend.TextStyle.Font, vg.Points(10))
	return nil
}

func (r *results) find(work, size string) *row {
	for _, row := range r.rows {
		if row.work == work && row.size == size {
			return row
		}
	}
	return nil
}

// decades are marks at 1 ns, 10 ns ... 1 s.
func decades() []plot.Tick {
	return ticks(1e-9, "1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s")
}

// ticks are marks at the first value, at ten times that, and so on.
func ticks(value float64, labels ...string) []plot.Tick {
	var ticks []plot.Tick
	for _, label := range labels {
		ticks = append(ticks, plot.Tick{Value: value, Label: label})
		value *= 10
	}
	return ticks
}
