// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules says which metrics exist and which expression reads each, from three
// things: the administrator's rules, in prometheus-adapter's language; the metrics that
// teams declare; and the series that sources have now. Each rule stands for itself: a
// bad one is a RuleHealth, and stops no other.
//
// Where it differs from prometheus-adapter, which it otherwise follows to the letter:
//   - Names of objects are escaped in regular expressions, and where two labels name the
//     same resource the choice does not change from run to run.
//   - Whether a resource has namespaces is what the cluster says.
//   - A rule whose resources name no label for the namespace uses the source's
//     (tenancy.namespaceLabel), and a rule without metricsQuery sums; there, every query
//     would fail.
//   - A query that provably may be asked for all objects of a namespace is asked that
//     way, so that autoscalers with different selectors share it (see widen).
//   - Where a team declares a metric, it counts in the team's namespace, whatever the
//     rules say: it is the explicit one of the two, and a rule for whole families of
//     series must not silently change what an autoscaler reads. Of declared metrics
//     with the same name the oldest counts.
package rules
