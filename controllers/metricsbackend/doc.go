// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsbackend reconciles MetricsBackends. controller.go runs the phases in
// order; each phase has its own file.
//
// The invariant: at no time is an API version in discovery that a ready pod does not
// serve. So versions are retired before anything else changes, and registered after
// everything else is done.
//
// The files, by subject:
//
//   - a reconciliation: controller.go (the phases), state.go (what they share), setup.go
//     (watches and cache), errors.go, history.go (what is remembered between
//     reconciliations, and grace periods)
//   - several operators in one cluster: installation.go (package installation)
//   - the spec: validate.go, versions.go (the API versions that it names, and those that two
//     backends name)
//   - APIServices: package lifecycle decides about each of them. advance.go makes the observations
//     that it needs, and does what was decided, with ownership.go (whose they are), register.go,
//     compare.go (what theirs answers and ours does not), adopt.go (takes one over), verify.go
//     (requests through it), retire.go (removes them) and restore.go (hands one back)
//   - what is deployed: deploy.go, certificates.go (package certificates), rollout.go
//   - pods and their answers: pod.go (and its status), probe.go; existing.go and
//     probedservice.go for spec.existing
//   - what pods report: sources.go and consumers.go (package reports)
//   - the status: status.go, recording.go (events and metrics)
//   - deletion: finalize.go (of a MetricsBackend, and of the operator's namespace)
package metricsbackend
