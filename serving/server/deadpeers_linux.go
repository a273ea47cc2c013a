// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Accept bounds how long the connection may be dead. A kernel that knows no such
// bound, as for a connection of Multipath TCP, is no reason to refuse a client.
func (l livingListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if err := boundUnacknowledged(connection); err != nil {
		klog.Background().V(4).Info("Cannot bound how long a connection outlives its client", "client", connection.RemoteAddr(), "err", err)
	}
	return connection, nil
}

func boundUnacknowledged(connection net.Conn) error {
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
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledgedTimeout.Milliseconds()))
	}); err != nil {
		return err
	}
	return set
}
