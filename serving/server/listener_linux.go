// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Accept implements net.Listener. A connection that does not support the option, such as
// Multipath TCP on some kernels, is accepted without it.
func (l userTimeoutListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := setUserTimeout(connection); err != nil {
		klog.Background().V(4).Info("Cannot set TCP_USER_TIMEOUT on a connection", "client", connection.RemoteAddr(), "err", err)
	}
	return connection, nil
}

func setUserTimeout(connection net.Conn) error {
	socket, ok := connection.(syscall.Conn)
	if !ok {
		return syscall.ENOTSOCK
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(tcpUserTimeout.Milliseconds()))
	}); err != nil {
		return err
	}
	return set
}
