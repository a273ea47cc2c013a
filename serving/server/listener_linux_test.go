// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// acceptedListener keeps the connection that it accepted last.
type acceptedListener struct {
	net.Listener
	accepted net.Conn
}

func (l *acceptedListener) Accept() (connection net.Conn, err error) {
	l.accepted, err = l.Listener.Accept()
	return l.accepted, err
}

// TestListenerOptions reads the socket options that the server's listeners set. An integration
// test covers the effect of TCP_USER_TIMEOUT on a client that disappears.
func TestListenerOptions(t *testing.T) {
	// Like the generic API server, with Multipath TCP where Go supports it.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	socket := &acceptedListener{Listener: listener}
	served := coalescingListener{userTimeoutListener{socket}}
	defer served.Close()
	client, err := net.Dial("tcp", served.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	connection, err := served.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()

	raw, err := socket.accepted.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	if err := raw.Control(func(fd uintptr) {
		for name, option := range map[string]struct{ level, name int }{
			"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE},
			"TCP_KEEPIDLE":     {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
			"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
		} {
			value, err := unix.GetsockoptInt(int(fd), option.level, option.name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got[name] = value
		}
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"SO_KEEPALIVE":     1,
		"TCP_KEEPIDLE":     180, // as the generic API server
		"TCP_USER_TIMEOUT": int(tcpUserTimeout.Milliseconds()),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("socket options (-want +got):\n%s", diff)
	}
}
