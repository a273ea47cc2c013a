// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fairshare divides a limit between tenants whose number is not known.
package fairshare

// Allows reports whether a tenant that uses own of the total of all tenants may use more: whether
// it then uses at most one more than what is left of the limit. So a single tenant may use half of
// the limit, and n tenants that grow together n/(n+1), which leaves a share for another one.
func Allows(own, total, more, limit int) bool { return own+more <= limit-(total+more)+1 }
