// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

type row struct {
	title  string
	panels []panel
}

// panel is a graph, a number if it has levels, or the states of each series over time.
type panel struct {
	title, unit string
	// help is shown at the panel.
	help string
	// noData says why the panel may be empty; test/e2e expects data of the others.
	noData  string
	queries []query
	// levels colours the newest value.
	levels []level
	// yes says that the value is 1 for yes and 0 for no.
	yes bool
	// stacked adds the series up.
	stacked bool
	// states says that values are 1 or 0, which are good and bad, and the reverse for series whose legend matches bad.
	states bool
	bad    string
	// width is 4 for numbers and 8 for graphs unless it is set.
	width uint32
}

// level is a colour from a value on. The first one has no value.
type level struct {
	from  float64
	color string
}

type query struct{ expr, legend string }

// of replaces the words in capitals in an expression.
func of(expr, legend string) query {
	return query{strings.NewReplacer(
		"SERVING", `namespace=~"$namespace",job=~"$job"`,
		"BACKEND", `backend=~"$backend"`,
		"LEADER", `leader_election_master_status{name="metrics-backend-operator.metricsbackend.io"}`,
		"RATE", "$__rate_interval",
	).Replace(strings.TrimSpace(expr)), legend}
}

// quantiles are the median and the 99th percentile of a histogram of serving, by further labels.
func quantiles(metric string, by ...string) []query {
	var all []query
	legend := ""
	for _, label := range by {
		legend += "{{" + label + "}} "
	}
	for _, q := range []struct{ quantile, name string }{{"0.5", "p50"}, {"0.99", "p99"}} {
		all = append(all, of("histogram_quantile("+q.quantile+", sum by ("+strings.Join(append([]string{"le"}, by...), ", ")+") (rate("+metric+"_bucket{SERVING}[RATE])))", legend+q.name))
	}
	return all
}

func (p panel) description() string {
	if p.noData == "" {
		return p.help
	}
	return strings.TrimSpace(p.help + " No data: " + p.noData)
}

func (p panel) builder(id uint32) cog.Builder[dashboard.Panel] {
	switch {
	case p.levels != nil:
		return p.number(id)
	case p.states:
		return p.timeline(id)
	}
	return p.graph(id)
}

func (p panel) targets() []cog.Builder[variants.Dataquery] {
	var all []cog.Builder[variants.Dataquery]
	for i, q := range p.queries {
		b := prometheus.NewDataqueryBuilder().Datasource(datasource).RefId(string(rune('A' + i))).Expr(q.expr).LegendFormat(q.legend)
		if p.levels != nil {
			b.Instant()
		} else {
			b.Range()
		}
		all = append(all, b)
	}
	return all
}

func (p panel) number(id uint32) *stat.PanelBuilder {
	steps := make([]dashboard.Threshold, 0, len(p.levels))
	for i, l := range p.levels {
		step := dashboard.Threshold{Color: l.color}
		if i > 0 {
			step.Value = &l.from
		}
		steps = append(steps, step)
	}
	b := stat.NewPanelBuilder().
		Id(id).Title(p.title).Description(p.description()).Datasource(datasource).Unit(p.unit).
		Span(max(p.width, 4)).Height(4).
		ColorMode(common.BigValueColorModeBackground).GraphMode(common.BigValueGraphModeNone).Orientation(common.VizOrientationAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Thresholds(dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)).
		Targets(p.targets())
	if p.yes {
		b.Mappings(texts(dashboard.ValueMappingResult{Text: new("no")}, dashboard.ValueMappingResult{Text: new("yes")}))
	}
	return b
}

// texts are shown for 0 and 1.
func texts(zero, one dashboard.ValueMappingResult) []dashboard.ValueMapping {
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{
		Type: dashboard.MappingTypeValueToText, Options: map[string]dashboard.ValueMappingResult{"0": zero, "1": one},
	}}}
}

func (p panel) timeline(id uint32) *statetimeline.PanelBuilder {
	colored := func(zero, one string) []dashboard.ValueMapping {
		return texts(dashboard.ValueMappingResult{Text: new("0"), Color: &zero}, dashboard.ValueMappingResult{Text: new("1"), Color: &one})
	}
	return statetimeline.NewPanelBuilder().
		Id(id).Title(p.title).Description(p.description()).Datasource(datasource).Unit(p.unit).
		Span(cmp.Or(p.width, 8)).Height(8).
		MergeValues(true).ShowValue(common.VisibilityModeNever).RowHeight(0.9).FillOpacity(70).LineWidth(0).
		Mappings(colored(red, green)).
		OverrideByRegexp(p.bad, []dashboard.DynamicConfigValue{{Id: "mappings", Value: colored(green, red)}}).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(false)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeSingle).Sort(common.SortOrderNone)).
		Targets(p.targets())
}

func (p panel) graph(id uint32) *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().
		Id(id).Title(p.title).Description(p.description()).Datasource(datasource).Unit(p.unit).Min(0).
		Span(cmp.Or(p.width, 8)).Height(8).
		LineWidth(1).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Targets(p.targets())
	if p.stacked {
		b.Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
	}
	return b
}
