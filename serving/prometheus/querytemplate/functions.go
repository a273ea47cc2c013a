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

// stepFunction cannot be written in a template by accident; who writes it counts a step.
const stepFunction = "_step"

// scaleBytes is the length of strings with which a step costs twice as much.
const scaleBytes = 4096

// functions are the builtin ones that make strings, bounded: a loop that doubles a
// string would take all memory before anything is written. The others of text/template
// return what is there already.
func (t *Template) functions() template.FuncMap {
	return template.FuncMap{
		stepFunction: func(cost int) (string, error) { return "", t.charge(cost * t.scale) },
		"print": func(args ...any) (string, error) {
			return t.guard(args, 1, func() string { return fmt.Sprint(args...) })
		},
		"println": func(args ...any) (string, error) {
			return t.guard(args, 1, func() string { return fmt.Sprintln(args...) })
		},
		"printf": t.printf,
		"html": func(args ...any) (string, error) {
			return t.guard(args, 1, func() string { return template.HTMLEscaper(args...) })
		},
		"js": func(args ...any) (string, error) {
			return t.guard(args, 1, func() string { return template.JSEscaper(args...) })
		},
		"urlquery": func(args ...any) (string, error) {
			return t.guard(args, 1, func() string { return template.URLQueryEscaper(args...) })
		},
	}
}

func (t *Template) charge(cost int) error {
	// Costs are far below an overflow, but a template may name its own.
	if cost < 0 || cost > maxWork-t.work {
		return ErrTooMuchWork
	}
	t.work += cost
	return nil
}

// width is a width or a precision of a verb that is too large or not written down.
var width = regexp.MustCompile(`%[^a-zA-Z%]*([0-9]{4}|\*)`)

func (t *Template) printf(format string, args ...any) (string, error) {
	if width.MatchString(format) {
		return "", fmt.Errorf("printf: widths can have three digits at most")
	}
	verbs := strings.Count(format, "%")
	if len(format)+verbs*999 > MaxOutput {
		return "", ErrTooLong
	}
	// An argument can be printed by each verb: %[1]s.
	return t.guard(append([]any{format}, args...), max(1, verbs), func() string { return fmt.Sprintf(format, args...) })
}

// guard calls f if what it makes of the arguments cannot be far beyond the bound.
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

// size is about how long a value is when it is printed.
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
