// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"time"
	"unicode"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Shortfalls returns a warning for each rule of whose queries one does not give those who
// ask what it should, in the order of the spec. healthy says whether a source has answered
// ever since an instant: what it left unanswered otherwise is told of the source, once.
func (c *Catalogue) Shortfalls(now time.Time, healthy func(source string, since time.Time) bool) []v1alpha1.RuleHealth {
	c.mu.RLock()
	judged := c.judged
	c.mu.RUnlock()
	var all []v1alpha1.RuleHealth
	for _, r := range judged {
		s := r.shortfalls.Now(now)
		if s == nil || s.Failure != nil && !healthy(s.Question.Source, s.Time) {
			continue
		}
		all = append(all, shortfallProblem(s, r.external).health(r.path))
	}
	return all
}

// unfit says why something has no value, and what to do, in words that do not change with
// each evaluation.
var unfit = map[query.Unfit]string{
	query.UnfitDuplicate: "the answer has several series for one: aggregate in metricsQuery, or set duplicates",
	query.UnfitNaN:       "the query gives NaN (not a number, such as 0/0): correct metricsQuery, or set nanAsZero if autoscalers may go by 0",
	query.UnfitInfinite:  "the query gives an infinity (such as 1/0): correct metricsQuery",
	query.UnfitTooLarge:  "the query gives more than autoscalers can read: choose a larger unit in metricsQuery",
	query.UnfitNoObject:  "the answer lacks the label that names the object: group by it in metricsQuery (<<.GroupBy>>)",
}

// shortfallProblem says what is missing, with an example of it. Of external metrics it has none:
// policies say who may read which series, and a status is read by more.
func shortfallProblem(s *query.Shortfall, external bool) *problem {
	in := ""
	if s.Question.Owner != "" {
		in = " in namespace " + printed(s.Question.Owner)
	}
	if s.Failure != nil {
		return failureProblem(s.Failure, in)
	}
	switch {
	case external:
		return warnf(string(s.Unfit), "series have no value%s, and kubectl metrics explain-metric shows which: %s", in, unfit[s.Unfit])
	case s.Object == "":
		return warnf(string(s.Unfit), "series have no value, such as %s%s: %s", printedLabels(s.Labels), in, unfit[s.Unfit])
	}
	return warnf(string(s.Unfit), "objects have no value, such as %s%s: %s", printed(s.Object), in, unfit[s.Unfit])
}

func failureProblem(f *query.Failure, in string) *problem {
	what, remedy := "rejects", "correct metricsQuery"
	switch f.Reason {
	case query.ReasonTooLarge:
		what, remedy = "has too large an answer to", "aggregate in metricsQuery"
	case query.ReasonTimeout:
		what, remedy = "is too slow with", "make metricsQuery cheaper"
	}
	return warnf(string(f.Reason), "the source %q %s a query of the rule%s (%s): %s", f.Source, what, in, remedy, f.Message)
}

// printedLabels are labels as a message has them: whoever is scraped chooses them.
func printedLabels(labels string) string {
	const most = 200
	labels = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, labels)
	if len(labels) > most {
		labels = strings.ToValidUTF8(labels[:most], "") + "…"
	}
	return labels
}
