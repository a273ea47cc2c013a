// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/binary"
	"net"
	"os"
)

// recordHeader is the length of a TLS record's header, which ends with the length
// of the rest in two bytes (RFC 8446, section 5.1).
const recordHeader = 5

// recordConn is a connection whose reads end at the end of a TLS record.
//
// crypto/tls keeps its input buffer as long as the connection. A read beyond the
// record makes it grow from 17 KB to two records, 38 KB; with thousands of idle
// connections that is more than all samples.
type recordConn struct {
	net.Conn
	// buffer is filled by reads of Conn. It belongs to the workspace of the scrape
	// that uses the connection, and is nil without one.
	buffer []byte
	// unread is the part of buffer that was not yet returned.
	unread []byte
	header [recordHeader]byte
	have   int // bytes of the header
	left   int // remaining bytes of the record
}

// Read implements net.Conn.
func (c *recordConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if len(c.unread) == 0 {
		if c.buffer == nil {
			// Only what was received before can be read. crypto/tls keeps no timeout.
			return 0, os.ErrDeadlineExceeded
		}
		n, err := c.Conn.Read(c.buffer)
		if n == 0 {
			return 0, err
		}
		// The next read returns an error that came with bytes.
		c.unread = c.buffer[:n]
	}
	if c.left > 0 {
		n := copy(b[:min(len(b), c.left)], c.unread)
		c.unread = c.unread[n:]
		c.left -= n
		return n, nil
	}
	n := copy(b[:min(len(b), recordHeader-c.have)], c.unread)
	c.unread = c.unread[n:]
	c.have += copy(c.header[c.have:], b[:n])
	if c.have == recordHeader {
		c.left = int(binary.BigEndian.Uint16(c.header[recordHeader-2:]))
		c.have = 0
	}
	return n, nil
}

// releaseBuffer takes the buffer away until the next scrape. It reports whether the
// connection is at the end of a record and the buffer had nothing more.
func (c *recordConn) releaseBuffer() bool {
	empty := len(c.unread) == 0 && c.have == 0 && c.left == 0
	c.buffer, c.unread = nil, nil
	return empty
}
