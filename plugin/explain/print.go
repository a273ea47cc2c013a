// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/structured"
	"github.com/metricsbackend/metrics-backend-operator/plugin/tree"
)

type printer func(io.Writer, []Explained, time.Time) error

func printerFor(output string) (printer, error) {
	switch output {
	case "text":
		return func(w io.Writer, all []Explained, now time.Time) error {
			var roots []*tree.Node
			for i := range all {
				roots = append(roots, all[i].tree(now))
			}
			return tree.Print(w, roots...)
		}, nil
	case "json":
		return func(w io.Writer, all []Explained, _ time.Time) error {
			return structured.JSON(w, all)
		}, nil
	case "yaml":
		return func(w io.Writer, all []Explained, _ time.Time) error {
			return structured.YAML(w, all)
		}, nil
	}
	return nil, fmt.Errorf("--output %q: must be text, json or yaml", output)
}

// tree reads from the top as the trip of a request: definition, question, answer, values.
func (e *Explained) tree(now time.Time) *tree.Node {
	root := tree.New(tree.Cell{Text: e.title, Tone: tree.Strong})
	row := func(what, text string) { root.Add(tree.Text(what), tree.Text(text)) }
	row("defined by", e.Origin)
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

// answer is what the source said.
func (e *Explained) answer(root *tree.Node, now time.Time) {
	if e.Failure != nil {
		root.Add(tree.Text("answer"), tree.Cell{Text: e.Failure.Reason + ": " + e.Failure.Message, Tone: tree.Bad})
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
	node := root.Add(tree.Text("answer"), tree.Text(text))
	for i := range e.Series {
		node.Add(tree.Text(e.Series[i].Value), tree.Text(series(e.Series[i].Labels)))
	}
	rest(node, len(e.Series), e.SeriesCount)
	for _, warning := range e.Warnings {
		root.Add(tree.Text("warning"), tree.Cell{Text: warning, Tone: tree.Warning})
	}
}

// values are what clients get.
func (e *Explained) values(root *tree.Node, now time.Time) {
	heading := tree.Cell{Text: strconv.Itoa(e.ValueCount), Tone: tree.Good}
	switch {
	case e.ValueCount == 0 && e.Failure != nil:
		heading = tree.Cell{Text: "none; clients get the error", Tone: tree.Bad}
	case e.ValueCount == 0:
		heading = tree.Cell{Text: "none", Tone: tree.Bad}
	case e.Fallback:
		heading = tree.Cell{Text: fmt.Sprintf("%d, of the fallback", e.ValueCount), Tone: tree.Warning}
	}
	node := root.Add(tree.Text("values"), heading)
	for _, v := range e.Values {
		what := v.Object
		if what == "" {
			what = series(v.Labels)
		}
		node.Add(tree.Cell{Text: v.Value, Tone: tree.Strong}, tree.Text(what), tree.Cell{Text: ago(v.Time.Time, now), Tone: tree.Faint})
	}
	rest(node, len(e.Values), e.ValueCount)
	for _, o := range e.Omitted {
		root.Add(tree.Text("no value"), tree.Cell{Text: omitted(o), Tone: tree.Warning})
	}
}

func omitted(o v1alpha1.ExplainedOmission) string {
	what := o.Object
	if what == "" {
		what = series(o.Labels)
	}
	return what + ": " + o.Reason + ": " + o.Message
}

func rest(node *tree.Node, shown, all int) {
	if all > shown {
		node.Add(tree.Cell{Text: fmt.Sprintf("and %d more", all-shown), Tone: tree.Faint})
	}
}

func ago(t, now time.Time) string {
	return duration.HumanDuration(max(now.Sub(t), 0)) + " ago"
}

// series is a set of labels as PromQL writes it.
func series(labels map[string]string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(labels)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name + "=" + strconv.Quote(labels[name]))
	}
	b.WriteByte('}')
	return b.String()
}
