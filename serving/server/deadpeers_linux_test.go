// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLivingListener asks the kernel; what the bound does to a client that vanished
// is an integration test.
func TestLivingListener(t *testing.T) {
	// As the generic API server listens, with Multipath TCP where Go has it.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	living := livingListener{listener}
	defer living.Close()
	client, err := net.Dial("tcp", living.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	connection, err := living.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()

	// net/http's keep-alive looks for this type.
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
	if want := int(unacknowledgedTimeout.Milliseconds()); got != want {
		t.Errorf("the bound is %d ms, want %d", got, want)
	}
}
