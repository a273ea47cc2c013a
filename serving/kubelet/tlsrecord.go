// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/binary"
	"net"
)

// recordHeader is the length of a TLS record's header, which ends with the length
// of the rest in two bytes (RFC 8446, section 5.1).
const recordHeader = 5

// tlsRecordConn is a connection whose reads end at the end of a TLS record.
//
// crypto/tls keeps its input buffer as long as the connection. A read beyond the
// record makes it grow from 17 KB to two records, 38 KB; with thousands of idle
// connections that is more than all samples.
type tlsRecordConn struct {
	net.Conn
	header [recordHeader]byte
	have   int // bytes of the header
	left   int // remaining bytes of the record
}

// Read implements net.Conn.
func (c *tlsRecordConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return c.Conn.Read(b)
	}
	if c.left > 0 {
		n, err := c.Conn.Read(b[:min(len(b), c.left)])
		c.left -= n
		return n, err
	}
	n, err := c.Conn.Read(b[:min(len(b), recordHeader-c.have)])
	c.have += copy(c.header[c.have:], b[:n])
	if c.have == recordHeader {
		c.left = int(binary.BigEndian.Uint16(c.header[recordHeader-2:]))
		c.have = 0
	}
	return n, err
}
