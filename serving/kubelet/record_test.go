// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/iotest"
)

// readConn is a connection that supports Read only.
type readConn struct {
	net.Conn
	io.Reader
}

func (c readConn) Read(b []byte) (int, error) { return c.Reader.Read(b) }

func TestRecordConn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var stream []byte
	ends := map[int]bool{0: true} // of headers and of records
	for _, length := range []int{1, 0, 5, 300, 16640, 0, 7} {
		stream = append(stream, 23, 3, 3)
		stream = binary.BigEndian.AppendUint16(stream, uint16(length))
		ends[len(stream)] = true
		for range length {
			stream = append(stream, byte(r.Uint32()))
		}
		ends[len(stream)] = true
	}
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader,
		"in halves":    iotest.HalfReader,
	} {
		t.Run(name, func(t *testing.T) {
			c := &recordConn{Conn: readConn{Reader: wrap(bytes.NewReader(stream))}, buffer: make([]byte, 1<<10)}
			var got []byte
			for buf := make([]byte, 32<<10); ; {
				n, err := c.Read(buf)
				before := len(got)
				got = append(got, buf[:n]...)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				for i := before + 1; i < len(got); i++ {
					if ends[i] {
						t.Fatalf("a read from %d to %d goes past the end of a header or record at %d", before, len(got), i)
					}
				}
			}
			if !bytes.Equal(got, stream) {
				t.Error("the stream was changed")
			}
			if !c.releaseBuffer() {
				t.Error("not at the end of a record at the end of the stream")
			}
		})
	}
}
