// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package querytemplate executes the templates in rules: Go's text/template with the delimiters
// << and >>, as in prometheus-adapter. Time and output of any template are bounded: steps,
// results of functions and output are counted while it runs.
package querytemplate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
)

// Limits of a template.
const (
	// MaxSource limits the bytes of a template's text.
	MaxSource = 32 << 10
	// MaxOutput limits the bytes that it writes, and that a function returns.
	MaxOutput = 1 << 20
	// maxWork limits the bytes of text that are executed, in each iteration of a loop, and of
	// arguments to functions; about a third of a second.
	maxWork = 16 << 20
	// stepWork is the cost of a step in addition to its text.
	stepWork = 256
)

// Errors of an execution.
var (
	ErrTooMuchWork = errors.New("it takes too long: loop over .GroupBySlice or .LabelValuesByName only")
	ErrTooLong     = fmt.Errorf("it makes more than %d bytes", MaxOutput)
	ErrEmpty       = errors.New("it makes nothing")
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	// mu guards work and scale. Executions take microseconds, so waiting is cheaper than a
	// clone for each.
	mu sync.Mutex
	// work is the work done, and scale the factor of a step's cost: comparisons read whole
	// strings.
	work, scale int
	tmpl        *template.Template
}

// Query is the input of a query's template. The field names are prometheus-adapter's.
type Query struct {
	Series            string
	LabelMatchers     string
	LabelValuesByName map[string]string
	GroupBy           string
	GroupBySlice      []string
}

// Label is the input of the template of a label's name.
type Label struct {
	Group    string
	Resource string
}

// Parse returns the template of a text of at most MaxSource bytes. Errors carry the name.
func Parse(name, text string) (*Template, error) {
	if len(text) > MaxSource {
		return nil, fmt.Errorf("it is %d bytes long: at most %d are possible", len(text), MaxSource)
	}
	t := &Template{}
	tmpl, err := template.New(name).Delims("<<", ">>").Funcs(t.functions()).Parse(text)
	if err != nil {
		return nil, trim(err, name)
	}
	for _, each := range tmpl.Templates() {
		if each.Tree != nil && each.Root != nil {
			addSteps(each.Root)
		}
	}
	t.tmpl = tmpl
	return t, nil
}

// addSteps inserts a step, with its cost, at the start of each template and loop body.
func addSteps(list *parse.ListNode) {
	cost := len(list.String()) + stepWork
	addStepsBelow(list)
	call := "<<" + stepFunction + " " + strconv.Itoa(cost) + ">>"
	step := template.Must(template.New("step").Delims("<<", ">>").Funcs(template.FuncMap{stepFunction: fmt.Sprint}).Parse(call))
	list.Nodes = slices.Insert(list.Nodes, 0, step.Root.Nodes[0])
}

func addStepsBelow(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.RangeNode:
			addSteps(n.List)
			addStepsBelow(n.ElseList)
		case *parse.IfNode:
			addStepsBelow(n.List)
			addStepsBelow(n.ElseList)
		case *parse.WithNode:
			addStepsBelow(n.List)
			addStepsBelow(n.ElseList)
		}
	}
}

// Execute returns the output for data, a Query or a Label. Empty output is an error.
func (t *Template) Execute(data any) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.work, t.scale = 0, 1+size(data)/scaleBytes
	var out bounded
	if err := t.tmpl.Execute(&out, data); err != nil {
		for _, known := range []error{ErrTooMuchWork, ErrTooLong} {
			if errors.Is(err, known) {
				return "", known
			}
		}
		return "", trim(err, t.tmpl.Name())
	}
	if out.text.Len() == 0 {
		return "", ErrEmpty
	}
	return out.text.String(), nil
}

// bounded is a writer of at most MaxOutput bytes.
type bounded struct{ text strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > MaxOutput {
		return 0, ErrTooLong
	}
	return b.text.Write(p)
}

// maxMessage limits the bytes of an error.
const maxMessage = 300

// trim removes the prefix of text/template, which does not help users.
func trim(err error, name string) error {
	message := strings.TrimPrefix(err.Error(), "template: "+name+":")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return errors.New(message)
}
