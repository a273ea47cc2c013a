// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeport finds ports for the servers of tests.
package freeport

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Port returns a port of loopback that the kernel gives to nobody else while this process runs: a socket is bound to it.
// That one does not listen, and allows others to use its address, as Go's listeners do, so a process may listen there.
func Port() (int, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	unix.CloseOnExec(socket)
	reuse := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	bound := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	address, err := unix.Getsockname(socket)
	if err := errors.Join(reuse, bound, err); err != nil {
		return 0, fmt.Errorf("find a free port: %w", errors.Join(err, unix.Close(socket)))
	}
	return address.(*unix.SockaddrInet4).Port, nil
}

// Must is Port for a test.
func Must(t testing.TB) int {
	t.Helper()
	port, err := Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Address returns a free port of loopback with its host.
func Address(t testing.TB) string {
	t.Helper()
	return Join(Must(t))
}

// Join returns a port of loopback with its host.
func Join(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
