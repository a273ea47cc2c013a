// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servingcert makes and checks the certificates of the serving pods: an
// authority of the operator's own and the leaf that it signs, or a leaf of someone
// else's, and the bundle that clients verify with. It knows no Kubernetes object;
// bytes are PEM.
package servingcert

import (
	"time"
)

const (
	// AuthorityLifetime is how long a new authority is valid.
	AuthorityLifetime = 10 * 365 * 24 * time.Hour
	// LeafLifetime is how long a new leaf is valid, unless its authority ends first.
	LeafLifetime = 90 * 24 * time.Hour

	// authorityRenewWhenLeft is the part of its lifetime that an authority has left
	// when it is replaced: a fifth, two years.
	authorityRenewWhenLeft = 5
	// leafRenewWhenLeft is the same of a leaf: a third, so that a month of trouble
	// costs nothing.
	leafRenewWhenLeft = 3
	// backdate lets clocks that are behind accept a new certificate.
	backdate = time.Hour
)
