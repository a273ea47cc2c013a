// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// A problem is reported for minProblemTime or problemIntervals after it was last seen, whichever
// is longer, as autoscalers may query less often than each interval.
const (
	minProblemTime   = time.Minute
	problemIntervals = 4
)

// Problem is a query that fails, or whose result lacks values, because of the query itself.
// A source that fails whatever the query makes none. It is immutable.
type Problem struct {
	// Query is the one with the problem. A long Expression is replaced by its digest: there may be a
	// thousand rules, and clients choose the length of their selectors.
	Query Query
	// Time of the newest evaluation with this problem.
	Time time.Time
	// Failure is why there is no result; nil if there is one.
	Failure *Failure
	// OmitReason is why something has no value if there is a result: the Object of that name,
	// or else the series with these Labels, in order.
	OmitReason     OmitReason
	Object, Labels string
	// ObjectLabel is that of the MetricQuery.
	ObjectLabel string

	// selector is that of the MetricQuery, or its digest.
	selector string
}

// ProblemTracker keeps one Problem of all queries of one Origin, of which there may be
// many. It keeps the problem while it is repeated, rather than alternate with others, until a newer
// result of its query has what was missing, or until it has not been repeated for some time (see
// minProblemTime). A failure replaces a missing value. The zero value is ready; nil tracks nothing.
type ProblemTracker struct{ problem atomic.Pointer[Problem] }

// Current returns the problem, or nil if there is none.
func (t *ProblemTracker) Current(now time.Time) *Problem {
	p := t.problem.Load()
	if p != nil && p.olderThan(p.expiry(), now) {
		t.problem.CompareAndSwap(p, nil)
		return nil
	}
	return p
}

// observe updates the problem with what Values read. It does not lock, and does not allocate
// unless there is a problem. Of two concurrent calls one may be lost: there will be others.
func (t *ProblemTracker) observe(m *MetricQuery, result *Result, err error, v *Values, objects []string) {
	if t == nil {
		return
	}
	p := t.problem.Load()
	found := m.problem(result, v, err)
	switch {
	case p == nil && found == nil:
	case p == nil:
		t.problem.CompareAndSwap(nil, found)
	case p.repeatedBy(found, v):
		if found.Time.After(p.Time) {
			renewed := *p // with the same message, so that the status does not change
			renewed.Time = found.Time
			t.problem.CompareAndSwap(p, &renewed)
		}
	case err == nil && p.fixedBy(m, v, objects),
		found != nil && (found.Failure != nil && p.Failure == nil || p.olderThan(p.expiry()/2, found.Time)):
		t.problem.CompareAndSwap(p, found)
	}
}

func (p *Problem) expiry() time.Duration {
	return max(minProblemTime, problemIntervals*p.Query.Interval)
}

// olderThan reports whether an instant is further from the problem than d, in either direction:
// clocks may be set back.
func (p *Problem) olderThan(d time.Duration, at time.Time) bool { return at.Sub(p.Time).Abs() > d }

// repeatedBy reports whether newly read values have the same problem, among others.
func (p *Problem) repeatedBy(found *Problem, v *Values) bool {
	switch {
	case found == nil || found.Query != p.Query:
		return false
	case p.Failure != nil:
		return found.Failure != nil && found.Failure.Reason == p.Failure.Reason
	case found.Failure != nil || found.ObjectLabel != p.ObjectLabel || found.selector != p.selector:
		return false
	case found.OmitReason == p.OmitReason && found.Object == p.Object && found.Labels == p.Labels, v.Omissions > len(v.Omitted):
		return true
	}
	return slices.ContainsFunc(v.Omitted, func(o Omission) bool {
		return o.Reason == p.OmitReason && excerpt(o.Object) == p.Object && o.seriesLabels() == p.Labels
	})
}

// fixedBy reports whether newer values, which do not repeat the problem, have what was missing.
// Values of other objects do not count.
func (p *Problem) fixedBy(m *MetricQuery, v *Values, objects []string) bool {
	if m.boundedQuery() != p.Query {
		return false
	}
	if p.Failure != nil {
		// A result may be for the start of the slot in which the query failed.
		return v.Time.After(p.Time.Add(-m.Query.Interval))
	}
	return v.Time.After(p.Time) && m.ObjectLabel == p.ObjectLabel &&
		(m.Select == nil || m.boundedSelector() == p.selector) &&
		(p.Object == "" || objects == nil || slices.Contains(objects, p.Object))
}

// problem returns what values, or the error, lack because of the query; nil for nothing.
func (m *MetricQuery) problem(result *Result, v *Values, err error) *Problem {
	if err != nil {
		var failed *EvaluationError
		if !errors.As(err, &failed) || !failed.causedByQuery() {
			return nil
		}
		return &Problem{Query: m.boundedQuery(), Time: failed.Time, Failure: failed.Failure}
	}
	first := v.Omission("")
	if first == nil {
		if len(v.Items) > 0 || !m.lacksObjectLabel(result) {
			return nil
		}
		first = &Omission{Reason: OmitReasonNoObject, Labels: result.Samples[0].Labels}
	}
	return &Problem{
		Query: m.boundedQuery(), Time: result.Time, OmitReason: first.Reason, Object: excerpt(first.Object), Labels: first.seriesLabels(),
		ObjectLabel: m.ObjectLabel, selector: m.boundedSelector(),
	}
}

// causedByQuery reports whether the query is the likely cause: other queries do not fail with it.
func (e *EvaluationError) causedByQuery() bool {
	return e.Reason.queryFault() || e.Reason.ambiguous() && !e.circuitOpen && e.cause == nil
}

// lacksObjectLabel reports whether a result has series, but none that names an object. Values that are read
// by object names do not include such series.
func (m *MetricQuery) lacksObjectLabel(result *Result) bool {
	return m.Object == "" && m.ObjectLabel != "" && len(result.Samples) > 0 && len(result.withLabel(m.ObjectLabel)) == 0
}

// seriesLabels identifies the series; empty if Object does.
func (o *Omission) seriesLabels() string {
	if o.Object != "" {
		return ""
	}
	return excerpt(labelKey(o.Labels))
}

// boundedSelector distinguishes the selectors of one query.
func (m *MetricQuery) boundedSelector() string {
	if m.Select == nil {
		return ""
	}
	return bounded(m.Select.String())
}

// boundedQuery returns the query as a Problem keeps it.
func (m *MetricQuery) boundedQuery() Query {
	q, _ := m.Query.split()
	q.Expression, q.Batch = bounded(q.Expression), Batch{}
	return q
}

// bounded returns a text, or the digest of a long one.
func bounded(s string) string {
	if len(s) <= 1<<10 {
		return s
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s)))
}

// excerpt returns a copy of the beginning of a text, which may be long and part of a larger one.
func excerpt(s string) string {
	return strings.Clone(text.Truncate(s, 253)) // the longest name of an object
}
