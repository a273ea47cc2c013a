// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"time"
)

// tcpUserTimeout is how long sent data may stay unacknowledged before a connection is
// closed. client-go gives up on a server as fast: after 30 s without a frame and 15 s
// without an answer to a ping.
const tcpUserTimeout = 45 * time.Second

// userTimeoutListener sets TCP_USER_TIMEOUT on each connection, so that it is closed when
// the client disappears without a FIN, or does not read. By default Linux retransmits for
// 15 minutes, during which all watches of the connection would stay.
//
// The option is set per connection, since Go listens with Multipath TCP, whose listening
// sockets do not support it.
type userTimeoutListener struct{ net.Listener }
