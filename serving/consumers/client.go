// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// maxUserAgent and maxUser bound names, in bytes. The name of a
	// ServiceAccount as a user is up to 339 bytes long.
	maxUserAgent = 64
	maxUser      = 384
	// nameless stands for a client without a user agent, or without a user name.
	nameless = "(none)"
)

// client is who asks.
type client struct{ userAgent, user string }

// clientOf names a client as it came; it allocates nothing.
func clientOf(userAgent, user string) client {
	family, _, _ := strings.Cut(userAgent, "/")
	return client{userAgent: text.Prefix(family, maxUserAgent), user: text.Prefix(user, maxUser)}
}

// clone keeps nothing alive of the request that the names came with.
func (c client) clone() client {
	return client{userAgent: strings.Clone(c.userAgent), user: strings.Clone(c.user)}
}

// printable is the client with names that are safe in a terminal, a log and a
// status. For most clients it is the client itself.
func (c client) printable() client {
	return client{userAgent: printable(c.userAgent), user: printable(c.user)}
}

// printable replaces what is not text, or steers a terminal: control characters,
// changes of the writing direction, and bytes that are not UTF-8.
func printable(name string) string {
	name = strings.TrimSpace(name)
	if name == "" {
		return nameless
	}
	return text.Printable(name, maxUser)
}
