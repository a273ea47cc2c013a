// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUserTimeoutListener reads the socket option. An integration test covers its effect on
// a client that disappears.
func TestUserTimeoutListener(t *testing.T) {
	// Like the generic API server, with Multipath TCP where Go supports it.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := userTimeoutListener{listener}
	defer limited.Close()
	client, err := net.Dial("tcp", limited.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	connection, err := limited.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()

	// coalescingListener's keep-alive needs this type.
	tcp, ok := connection.(*net.TCPConn)
	if !ok {
		t.Fatalf("accepted a %T", connection)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	var asked error
	if err := raw.Control(func(fd uintptr) { got, asked = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); err != nil || asked != nil {
		t.Fatal(err, asked)
	}
	if want := int(tcpUserTimeout.Milliseconds()); got != want {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, want %d", got, want)
	}
}
