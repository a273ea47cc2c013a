// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package querytemplate executes the templates in rules: Go's text/template with the
// delimiters << and >>, as prometheus-adapter has them. Whatever a template holds, it
// ends soon and writes little: steps, results of functions and output are counted
// while it runs, and no goroutine is needed to stop it.
package querytemplate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// Bounds of a template.
const (
	// MaxSource is the most bytes of a template's text.
	MaxSource = 32 << 10
	// MaxOutput is the most bytes that it may write, and that a function may return.
	MaxOutput = 1 << 20
	// maxWork is the most bytes of a template's text that are executed, each round of a
	// loop counted, and of arguments to functions; about a third of a second.
	maxWork = 16 << 20
	// stepWork is what a step costs beside its text: calling a function and a template.
	stepWork = 256
)

// Why a template was ended.
var (
	ErrTooMuchWork = errors.New("it takes too long: loop over .GroupBySlice or .LabelValuesByName only")
	ErrTooLong     = fmt.Errorf("it makes more than %d bytes", MaxOutput)
	ErrEmpty       = errors.New("it makes nothing")
)

// Template is a parsed template, for concurrent use.
type Template struct {
	// mu guards what the template's own functions count. A template runs for
	// microseconds, so waiting costs less than a clone for each execution.
	mu sync.Mutex
	// work is what was done, and scale what a step costs: functions that compare look
	// at whole strings.
	work, scale int
	tmpl        *template.Template
}

// Query is what the template of a query sees. The names are prometheus-adapter's.
type Query struct {
	Series            string
	LabelMatchers     string
	LabelValuesByName map[string]string
	GroupBy           string
	GroupBySlice      []string
}

// Label is what the template of a label's name sees.
type Label struct {
	Group    string
	Resource string
}

// Parse parses a template.
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
		if each.Tree == nil || each.Root == nil {
			continue
		}
		if err := count(each.Root); err != nil {
			return nil, err
		}
	}
	t.tmpl = tmpl
	return t, nil
}

// count has each template and each round of a loop begin with a step that says how
// much it is.
func count(list *parse.ListNode) error {
	cost := len(list.String()) + stepWork
	if err := descend(list); err != nil {
		return err
	}
	const name = "step"
	trees, err := parse.Parse(name, "<<"+stepFunction+" "+strconv.Itoa(cost)+">>", "<<", ">>", map[string]any{stepFunction: true})
	if err != nil {
		return fmt.Errorf("counting its steps: %w", err)
	}
	list.Nodes = append([]parse.Node{trees[name].Root.Nodes[0]}, list.Nodes...)
	return nil
}

func descend(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		var err error
		switch n := n.(type) {
		case *parse.RangeNode:
			err = errors.Join(count(n.List), descend(n.ElseList))
		case *parse.IfNode:
			err = errors.Join(descend(n.List), descend(n.ElseList))
		case *parse.WithNode:
			err = errors.Join(descend(n.List), descend(n.ElseList))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Execute returns what the template makes of data, a Query or a Label. It is never empty.
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
	if out.Len() == 0 {
		return "", ErrEmpty
	}
	return out.String(), nil
}

// bounded is a writer that refuses what is too much.
type bounded struct{ strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > MaxOutput {
		return 0, ErrTooLong
	}
	return b.Builder.Write(p)
}

// WriteString keeps io.WriteString from going around Write.
func (b *bounded) WriteString(s string) (int, error) {
	if b.Len()+len(s) > MaxOutput {
		return 0, ErrTooLong
	}
	return b.Builder.WriteString(s)
}

// trim leaves off the words of text/template that say nothing to a user.
func trim(err error, name string) error {
	message := strings.TrimPrefix(err.Error(), "template: "+name+":")
	return errors.New(text.Truncate(message, 300))
}
