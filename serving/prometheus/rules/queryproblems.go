// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// QueryProblems returns a warning for each rule with a query that fails or omits values, in the
// order of the spec. healthy reports whether a source has been healthy since an instant: failed
// queries of other sources are skipped, as the health of the source reports them once.
func (c *Catalog) QueryProblems(now time.Time, healthy func(source string, since time.Time) bool) []v1alpha1.RuleHealth {
	c.mu.RLock()
	rules := c.healthRules
	c.mu.RUnlock()
	var all []v1alpha1.RuleHealth
	for _, r := range rules {
		s := r.queryProblems.Current(now)
		if s == nil || s.Failure != nil && !healthy(s.Query.Source, s.Time) {
			continue
		}
		all = append(all, r.queryProblem(s).health(r.path))
	}
	return all
}

// omitRemedies are the messages by reason, with what to do. They do not change between
// evaluations, so that the status is not rewritten.
var omitRemedies = map[query.OmitReason]string{
	query.OmitReasonDuplicate: "the answer has several series for one: aggregate in metricsQuery, or set duplicatesPolicy",
	query.OmitReasonNaN:       "the query gives NaN (not a number, such as 0/0): correct metricsQuery, or set nanAsZero if autoscalers may go by 0",
	query.OmitReasonInfinite:  "the query gives an infinity (such as 1/0): correct metricsQuery",
	query.OmitReasonTooLarge:  "the query gives more than autoscalers can read: choose a larger unit in metricsQuery",
	query.OmitReasonTooOld:    "their newest samples are older than maxSampleAge: check what exports them",
	query.OmitReasonNoObject:  "the answer lacks the label that names the object: group by it in metricsQuery (<<.GroupBy>>)",
}

// queryProblem returns the warning for a problem, with one example. External metrics have no
// example: the status is readable by more users than their policies allow.
func (r *rule) queryProblem(s *query.Problem) *problem {
	in := ""
	if s.Query.Tenant != "" {
		in = " in namespace " + quoteName(s.Query.Tenant)
	}
	if s.Failure != nil {
		return failureProblem(s.Failure, in)
	}
	remedy := omitRemedies[s.OmitReason]
	if rest := r.external || s.Object != "" && r.duplicates != v1alpha1.DuplicatesReject; rest && s.OmitReason != query.OmitReasonDuplicate && r.spec.InvalidValuesPolicy != v1alpha1.InvalidValuesOmit {
		remedy += "; or set invalidValuesPolicy to Omit, which serves the other series"
	}
	switch {
	case r.external:
		return warnf(string(s.OmitReason), "series have no value%s, and kubectl metrics-backend explain shows which: %s", in, remedy)
	case s.Object == "":
		return warnf(string(s.OmitReason), "series have no value, such as %s%s: %s", text.Printable(s.Labels, 200), in, remedy)
	}
	return warnf(string(s.OmitReason), "objects have no value, such as %s%s: %s", quoteName(s.Object), in, remedy)
}

func failureProblem(f *query.Failure, in string) *problem {
	what, remedy := "rejects", " (correct metricsQuery)"
	switch f.Reason {
	case query.ReasonTooLarge:
		what, remedy = "has too large an answer to", " (aggregate in metricsQuery)"
	case query.ReasonTimeout:
		what, remedy = "is too slow with", " (make metricsQuery cheaper)"
	case query.ReasonBadStatus, query.ReasonMalformed:
		what, remedy = "does not answer", " (see the server's log)"
	case query.ReasonRateLimited:
		what, remedy = "refuses for now", "" // the message has it
	}
	return warnf(string(f.Reason), "the source %q %s a query of the rule%s%s: %s", f.Source, what, in, remedy, f.Message)
}
