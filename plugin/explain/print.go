// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// tree returns definition, query, result and values, in the order of evaluation.
func (e *Explained) tree(now time.Time) *output.Node {
	root := output.New(output.Cell{Text: e.title, Tone: output.Strong})
	row := func(what, text string) { root.Add(output.Text(what), output.Text(text)) }
	row("defined by", e.Origin)
	for _, remark := range e.Remarks {
		row("remark", remark)
	}
	row("source", fmt.Sprintf("%s, asked each %s", e.Source, e.Interval.Duration))
	row("query", e.Query)
	switch {
	case e.Object != "":
		row("describes", e.Object)
	case e.ObjectLabel != "":
		row("describes", "what the label "+e.ObjectLabel+" names")
	}
	e.answer(root, now)
	e.values(root, now)
	row("read at", e.Path)
	return root
}

// answer adds the source's result.
func (e *Explained) answer(root *output.Node, now time.Time) {
	if e.Failure != nil {
		root.Add(output.Text("answer"), output.Cell{Text: e.Failure.Reason + ": " + e.Failure.Message, Tone: output.Bad})
		return
	}
	text := fmt.Sprintf("%d series", e.SeriesCount)
	if e.OtherSeries > 0 {
		text += fmt.Sprintf(", and %d that were not asked for", e.OtherSeries)
	}
	text += ", " + ago(e.Evaluated.Time, now)
	if e.Window.Duration > 0 {
		text += ", over " + e.Window.Duration.String()
	}
	node := root.Add(output.Text("answer"), output.Text(text))
	for i := range e.Series {
		node.Add(output.Text(e.Series[i].Value), output.Text(series(e.Series[i].Labels)))
	}
	addMore(node, len(e.Series), e.SeriesCount)
	for _, warning := range e.Warnings {
		root.Add(output.Text("warning"), output.Cell{Text: warning, Tone: output.Warning})
	}
}

// values adds the values that clients get.
func (e *Explained) values(root *output.Node, now time.Time) {
	heading := output.Cell{Text: strconv.Itoa(e.ValueCount), Tone: output.Good}
	switch {
	case e.ValueCount == 0 && e.Failure != nil:
		heading = output.Cell{Text: "none; clients get the error", Tone: output.Bad}
	case e.ValueCount == 0 && len(e.Omitted) > 0 && e.Object == "" && e.ObjectLabel == "":
		heading = output.Cell{Text: "none; clients get the reason as an error", Tone: output.Bad}
	case e.ValueCount == 0:
		heading = output.Cell{Text: "none", Tone: output.Bad}
	case e.Fallback:
		heading = output.Cell{Text: fmt.Sprintf("%d, of the fallback", e.ValueCount), Tone: output.Warning}
	}
	node := root.Add(output.Text("values"), heading)
	for _, v := range e.Values {
		node.Add(output.Cell{Text: v.Value, Tone: output.Strong}, output.Text(cmp.Or(v.Object, series(v.Labels))), output.Cell{Text: ago(v.Time.Time, now), Tone: output.Faint})
	}
	addMore(node, len(e.Values), e.ValueCount)
	for _, o := range e.Omitted {
		root.Add(output.Text("no value"), output.Cell{Text: omitted(o), Tone: output.Warning})
	}
}

func omitted(o v1alpha1.ExplainedOmission) string {
	what := o.Object + ": "
	switch {
	case o.Labels != nil && o.Object == "":
		what = series(o.Labels) + ": "
	case o.Object == "":
		what = "" // of all
	}
	return what + o.Reason + ": " + o.Message
}

func addMore(node *output.Node, shown, all int) {
	if all > shown {
		node.Add(output.Cell{Text: fmt.Sprintf("and %d more", all-shown), Tone: output.Faint})
	}
}

func ago(t, now time.Time) string {
	return duration.HumanDuration(max(now.Sub(t), 0)) + " ago"
}

// series returns labels in PromQL's notation.
func series(labels map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, name+"="+strconv.Quote(labels[name]))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}
