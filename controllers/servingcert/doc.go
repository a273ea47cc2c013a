// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servingcert makes and checks the managed certificates of the serving
// pods: an authority of the operator's own, the leaf that it signs, and the
// bundle that clients verify with. It knows no Kubernetes object; bytes are PEM.
package servingcert

import (
	"time"
)

const (
	// AuthorityLifetime is how long a new authority is valid.
	AuthorityLifetime = 10 * 365 * 24 * time.Hour
	// LeafLifetime is how long a new leaf is valid, unless its authority ends first.
	LeafLifetime = 90 * 24 * time.Hour

	// renewWhenLeft is the part of its lifetime that a leaf has left when it is
	// replaced: a third, so that a month of trouble costs nothing.
	renewWhenLeft = 3
	// backdate lets clocks that are behind accept a new certificate.
	backdate = time.Hour
	// maxBundle bounds how many former authorities stay trusted.
	maxBundle = 4
)
