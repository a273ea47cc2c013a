// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"time"
)

// unacknowledgedTimeout is for how long a peer may acknowledge nothing of what was
// sent to it. client-go gives a server up as fast: 30 s without a frame, and 15 s
// for the answer to a ping.
const unacknowledgedTimeout = 45 * time.Second

// livingListener ends connections of which the peer has acknowledged nothing for
// unacknowledgedTimeout: one that vanished without a FIN, and one that does not
// read. Left to itself, Linux retransmits for a quarter of an hour, for which all
// of a connection's watches would stay.
//
// The option goes to each connection, since Go listens with Multipath TCP, whose
// listening sockets do not know it.
type livingListener struct{ net.Listener }
