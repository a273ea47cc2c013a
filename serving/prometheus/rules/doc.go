// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rules decides which metrics exist and which query reads each of them, from the
// administrator's rules (in prometheus-adapter's language), the metrics that teams declare, and
// the series that sources have. Each rule is compiled on its own: an invalid one is reported as
// a RuleHealth and does not affect the others.
//
// Differences from prometheus-adapter:
//   - Names of objects are escaped in regular expressions, and where two labels name the same
//     resource the choice is deterministic.
//   - Whether a resource is namespaced is read from discovery.
//   - A rule whose resources name no label for the namespace uses the source's
//     (tenancy.namespaceLabel), and a rule without metricsQuery sums; in prometheus-adapter
//     every query of such rules fails.
//   - A query names no objects if that provably gives the same values, so that autoscalers
//     with different selectors share it (see sharedQuery).
//   - In the namespace of a declared metric, that metric wins over rules: a rule for whole
//     families of series must not silently change what an autoscaler reads. Of declared
//     metrics with the same name the oldest wins.
package rules
