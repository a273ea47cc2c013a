// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// Shortfall is what a question did not give, because of the question: its source refuses
// it, or something that it answers is no value. A source that fails whatever it is asked
// makes none. It is immutable.
type QueryProblem struct {
	// Question is what was asked, but for a long Expression, of which it has a digest: there
	// may be a thousand rules, and clients choose how long their selectors are.
	Query Query
	// Time of the newest evaluation that fell short like this.
	Time time.Time
	// Failure is why there is no answer; nil where there is one.
	Failure *Failure
	// Unfit is otherwise why something has no value, for example the Object of that name,
	// or else the series with these Labels, in order.
	OmitReason     OmitReason
	Object, Labels string
	// ObjectLabel is that of the Reading.
	ObjectLabel string

	// selector is what the Reading selected by, in brief, too.
	selector string
}

// leastShortfall and shortfallIntervals are for how long a shortfall is told that is not
// repeated: whichever is longer, as autoscalers may ask less often than each interval.
const (
	leastShortfall     = time.Minute
	shortfallIntervals = 4
)

func (s *QueryProblem) lasts() time.Duration {
	return max(leastShortfall, shortfallIntervals*s.Query.Interval)
}

// apart says that an instant is further from the shortfall than a time, in either
// direction: clocks are set back, too.
func (s *QueryProblem) apart(at time.Time, most time.Duration) bool {
	return at.Sub(s.Time).Abs() > most
}

// shortfall is what a reading gave less than it should; nil for nothing.
func (r *MetricQuery) shortfall(answer *Result, v *Values, err error) *QueryProblem {
	if err != nil {
		var outage *EvaluationError
		if !errors.As(err, &outage) || !outage.ofQuestion() {
			return nil
		}
		return &QueryProblem{Query: r.brief(), Time: outage.Time, Failure: outage.Failure}
	}
	first := v.Omission("")
	if first == nil {
		if len(v.Items) > 0 || !r.nameless(answer) {
			return nil
		}
		first = &Omission{Reason: OmitReasonNoObject, Labels: answer.Samples[0].Labels}
	}
	return &QueryProblem{
		Query: r.brief(), Time: answer.Time, OmitReason: first.Reason, Object: excerpt(first.Object), Labels: first.series(),
		ObjectLabel: r.ObjectLabel, selector: r.selection(),
	}
}

// series is which one it was, where it describes no object.
func (o *Omission) series() string {
	if o.Object != "" {
		return ""
	}
	return excerpt(labelKey(o.Labels))
}

// ofQuestion says that it is the question that has no answer, as far as one can tell:
// others do not fail with it.
func (o *EvaluationError) ofQuestion() bool {
	return o.Reason.answered() || o.Reason == ReasonTimeout && !o.suspended && o.cause == nil
}

// nameless says that no series of an answer has the label that names objects. Where
// objects are looked for by their names, none of it is read.
func (r *MetricQuery) nameless(answer *Result) bool {
	return r.Object == "" && r.ObjectLabel != "" && len(answer.Samples) > 0 && len(answer.labelled(r.ObjectLabel)) == 0
}

// selection tells apart the selectors of readings of one question.
func (r *MetricQuery) selection() string {
	if r.Select == nil {
		return ""
	}
	return brief(r.Select.String())
}

// brief is the reading's question, as a Shortfall keeps it.
func (r *MetricQuery) brief() Query {
	q := r.Query
	q.Expression = brief(q.Expression)
	return q
}

// brief tells texts apart without keeping those that are long.
func brief(text string) string {
	const most = 1 << 10
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

// excerpt is a copy of a text, which may be any length and part of something larger.
func excerpt(s string) string {
	return strings.Clone(text.Truncate(s, 253)) // the longest name of an object
}

// repeated says that a reading fell short like s, whatever else it lacks.
func (s *QueryProblem) repeated(found *QueryProblem, v *Values) bool {
	switch {
	case found == nil || found.Query != s.Query:
		return false
	case s.Failure != nil:
		return found.Failure != nil && found.Failure.Reason == s.Failure.Reason
	case found.Failure != nil || found.ObjectLabel != s.ObjectLabel || found.selector != s.selector:
		return false
	case found.OmitReason == s.OmitReason && found.Object == s.Object && found.Labels == s.Labels, v.Omissions > len(v.Omitted):
		return true
	}
	return slices.ContainsFunc(v.Omitted, func(o Omission) bool {
		return o.Reason == s.OmitReason && excerpt(o.Object) == s.Object && o.series() == s.Labels
	})
}

// mended says that a newer answer has what was missing, where it was not repeated. What is
// said of other objects proves nothing of this one.
func (s *QueryProblem) mended(r *MetricQuery, v *Values, objects []string) bool {
	if r.brief() != s.Query {
		return false
	}
	if s.Failure != nil {
		// An answer may be as of the beginning of the slot in which the question failed.
		return v.Time.After(s.Time.Add(-r.Query.Interval))
	}
	return v.Time.After(s.Time) && r.ObjectLabel == s.ObjectLabel &&
		(r.Select == nil || r.selection() == s.selector) &&
		(s.Object == "" || objects == nil || slices.Contains(objects, s.Object))
}
