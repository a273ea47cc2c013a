// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package querytemplate

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"text/template"
)

// stepFunction counts a step. A template that calls it itself only uses up its own budget.
const stepFunction = "_step"

// scaleBytes is the length of strings that doubles the cost of a step.
const scaleBytes = 4096

// functions returns the builtin functions that create strings, with limits: a loop that doubles a
// string would exhaust memory before it writes anything. The other functions of text/template
// return existing values.
func (t *Template) functions() template.FuncMap {
	all := template.FuncMap{
		stepFunction: func(cost int) (string, error) { return "", t.charge(cost * t.scale) },
		"printf":     t.printf,
	}
	for name, f := range map[string]func(...any) string{
		"print": fmt.Sprint, "println": fmt.Sprintln,
		"html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
	} {
		all[name] = func(args ...any) (string, error) {
			return t.guard(args, 1, func() string { return f(args...) })
		}
	}
	return all
}

func (t *Template) charge(cost int) error {
	// The template may call stepFunction with any cost.
	if cost < 0 || cost > maxWork-t.work {
		return ErrTooMuchWork
	}
	t.work += cost
	return nil
}

// width matches widths and precisions of verbs that are too large, or *.
var width = regexp.MustCompile(`%[^a-zA-Z%]*([0-9]{4}|\*)`)

func (t *Template) printf(format string, args ...any) (string, error) {
	if width.MatchString(format) {
		return "", fmt.Errorf("printf: widths can have three digits at most")
	}
	verbs := strings.Count(format, "%")
	if len(format)+verbs*999 > MaxOutput {
		return "", ErrTooLong
	}
	// Each verb can print the same argument: %[1]s.
	return t.guard(append([]any{format}, args...), max(1, verbs), func() string { return fmt.Sprintf(format, args...) })
}

// guard calls f unless its result for the arguments could be far beyond the limit.
func (t *Template) guard(args []any, times int, f func() string) (string, error) {
	total := 0
	for _, arg := range args {
		total += size(arg)
		if total > MaxOutput/times {
			return "", ErrTooLong
		}
	}
	if err := t.charge(total * times); err != nil {
		return "", err
	}
	s := f()
	if len(s) > MaxOutput {
		return "", ErrTooLong
	}
	t.scale = max(t.scale, 1+len(s)/scaleBytes)
	return s, nil
}

// size returns the approximate length of a printed value.
func size(arg any) int {
	const scalar = 32
	switch arg := arg.(type) {
	case string:
		return len(arg)
	case []string:
		n := scalar
		for _, s := range arg {
			n += len(s) + 1
		}
		return n
	case map[string]string:
		n := scalar
		for k, v := range arg {
			n += len(k) + len(v) + 2
		}
		return n
	case Query:
		return size(arg.LabelValuesByName) + size(arg.GroupBySlice) + len(arg.Series) + len(arg.LabelMatchers) + len(arg.GroupBy)
	case Label:
		return len(arg.Group) + len(arg.Resource) + scalar
	}
	if v := reflect.ValueOf(arg); v.IsValid() && v.Kind() == reflect.String {
		return v.Len()
	}
	return scalar
}
