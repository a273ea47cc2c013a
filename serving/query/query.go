// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package query is what metrics APIs and sources speak of with each other: a
// Question, put to a Source at an instant, and its Answer. Questions that are the
// same share one evaluation an interval, however many clients ask or watch: a Desk
// sees to that, and to sources that fail. A Reading makes Values of an answer.
package query

import (
	"context"
	"time"
)

// Question is what a source can be asked. Two questions that are equal have the
// same answer, so it is a map key.
type Query struct {
	// Source is the name of the source in spec.sources.
	Source string
	// Expression in the source's own language, such as PromQL.
	Expression string
	// Interval between two evaluations.
	Interval time.Duration
	// Owner is the namespace that the question is for; empty for one that is for the
	// whole cluster. It changes nothing in the answer: it is whose share of a Desk, and
	// of its source, the question takes.
	Tenant string
}

// Sample is one value of an answer. It is immutable.
type Sample struct {
	// Labels are all labels of the series, without the metric's name.
	Labels map[string]string
	// Value as the source gave it; it may be no number or infinite.
	Value float64
	// Time of the sample, as the source says.
	Time time.Time
}

// Answer is what a source said at one instant. It is immutable, shared and not copied.
type Result struct {
	// Time is the instant for which the question was evaluated.
	Time time.Time
	// Window is the longest range over which the expression looks back; zero for
	// instantaneous values.
	Window time.Duration
	// Samples in the order of the source.
	Samples []Sample
	// Warnings of the source, in its own words.
	Warnings []string

	index index
}

// Source evaluates questions. Errors are Failures, wrapped or not.
type Source interface {
	// Evaluate answers an expression as of an instant.
	Evaluate(ctx context.Context, expression string, at time.Time) (*Result, error)
}

// Asker answers questions from shared evaluations.
type Querier interface {
	// Ask returns an answer that was evaluated for an instant no longer ago than the
	// question's interval, and the time that the source takes.
	Query(ctx context.Context, q Query) (*Result, error)
	// Subscribe evaluates the query once per interval until stop is called, which may
	// be more than once. receive is called with each new result or error, one call at a
	// time and first with the cached one; it must not block. If since is not zero, the first
	// result is not evaluated for an earlier instant: a query that replaces another one passes
	// the time of that one's last result.
	Subscribe(q Query, since time.Time, receive func(*Result, error)) (stop func())
}
