// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/binary"
	"net"
)

// recordHeader is the length of a TLS record's header; its last two bytes are
// the length of what follows (RFC 8446, section 5.1).
const recordHeader = 5

// recordConn reads a TLS stream no further than to the end of a record.
//
// crypto/tls keeps its input buffer as long as the connection. When a read
// brings the beginning of the next record along, the buffer grows to two
// records, 38 KB, and stays so; with thousands of idle connections that is more
// than all samples. Without, it is 17 KB.
type recordConn struct {
	net.Conn
	header [recordHeader]byte
	have   int // bytes of the header
	left   int // bytes of the record after its header
}

// Read implements net.Conn.
func (c *recordConn) Read(b []byte) (int, error) {
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
