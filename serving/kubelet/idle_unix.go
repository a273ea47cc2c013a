// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package kubelet

import (
	"errors"
	"net"
	"syscall"
)

// hasInput reports whether an idle connection cannot be reused: the peer has closed it,
// or has sent what was not requested. It does not block.
func hasInput(c net.Conn) bool {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	var peekErr error
	err = raw.Read(func(fd uintptr) bool {
		// The socket is non-blocking, as all of package net.
		_, _, peekErr = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK) //nolint:gosec // a file descriptor
		return true
	})
	return err != nil || !errors.Is(peekErr, syscall.EAGAIN)
}
