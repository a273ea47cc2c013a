// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package readiness

import "context"

// NewScrapeTokenGate waits until check returns nil: until there is a token for kubelets. It has
// no timeout: a rollout must not replace pods that can scrape kubelets by pods that cannot.
func NewScrapeTokenGate(check func() error) Gate { return scrapeTokenGate{check} }

type scrapeTokenGate struct{ check func() error }

// Name implements Gate.
func (scrapeTokenGate) Name() string { return "scrape-token" }

// Check implements Gate.
func (g scrapeTokenGate) Check(context.Context) error { return g.check() }
