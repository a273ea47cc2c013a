// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// endDeadConnections makes connections end of which the peer has acknowledged
// nothing for unacknowledgedTimeout: one that vanished without a FIN, and one that
// does not read. Left to itself, Linux retransmits for a quarter of an hour, for
// which all of a connection's watches would stay.
func endDeadConnections(listener net.Listener) error {
	socket, ok := listener.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T is no socket", listener)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	// Accepted connections inherit the option.
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledgedTimeout.Milliseconds()))
	})
	return errors.Join(err, set)
}
