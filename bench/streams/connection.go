// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package streams keeps thousands of HTTP/2 requests open on one connection, at a fraction
// of the server's cost: it has one reader for all, and no goroutine, buffer or timer per
// request, so that clients on the same machine do not distort the measurement.
package streams

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// window is the flow-control window of each stream and of the connection, in bytes. It is
// large enough that the server never waits for this client.
const window = 1 << 30

// refill is the number of bytes after which the connection's window is increased again.
const refill = 1 << 20

// Handler handles the response to one request. The connection's reader makes all calls, so
// they must be short, and must not keep the bytes.
type Handler interface {
	// Head is called with the status, once.
	Head(status int, at time.Time)
	// Body is called with each piece of the body.
	Body(piece []byte, at time.Time)
	// End is called last, with nil if the response is complete.
	End(err error, at time.Time)
}

// Connection is one HTTP/2 connection over TLS.
type Connection struct {
	conn   *countedConn
	framer *http2.Framer

	// mu guards writing.
	mu     sync.Mutex
	block  bytes.Buffer
	header *hpack.Encoder
	next   uint32

	// open are the running requests, guarded by mu.
	open map[uint32]Handler
	err  error

	unacknowledged int
	ended          chan struct{}
}

// Dial connects, and reads until Close. The server must speak HTTP/2.
func Dial(ctx context.Context, address string, config *tls.Config) (*Connection, error) {
	config = config.Clone()
	config.NextProtos = []string{http2.NextProtoTLS}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	counted := &countedConn{Conn: raw}
	secured := tls.Client(counted, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", address, err)
	}
	if p := secured.ConnectionState().NegotiatedProtocol; p != http2.NextProtoTLS {
		_ = raw.Close()
		return nil, fmt.Errorf("%s speaks %q, not HTTP/2", address, p)
	}
	c := &Connection{
		conn: counted, framer: http2.NewFramer(secured, secured),
		next: 1, open: map[uint32]Handler{}, ended: make(chan struct{}),
	}
	c.header = hpack.NewEncoder(&c.block)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.SetReuseFrames()
	if err := c.greet(secured); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("begin HTTP/2 with %s: %w", address, err)
	}
	go c.read()
	return c, nil
}

func (c *Connection) greet(w io.Writer) error {
	if _, err := io.WriteString(w, http2.ClientPreface); err != nil {
		return err
	}
	if err := c.framer.WriteSettings(
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: window},
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20},
	); err != nil {
		return err
	}
	return c.framer.WriteWindowUpdate(0, window-65535)
}

// Get requests a path. Header fields are pairs of a lower-case name and a value.
func (c *Connection) Get(path string, header []string, handler Handler) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.block.Reset()
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "serving"}, {":path", path}} {
		if err := c.header.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			return err
		}
	}
	for i := 0; i+1 < len(header); i += 2 {
		if err := c.header.WriteField(hpack.HeaderField{Name: header[i], Value: header[i+1]}); err != nil {
			return err
		}
	}
	id := c.next
	c.next += 2
	c.open[id] = handler
	return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndStream: true, EndHeaders: true})
}

// Open returns the number of running requests.
func (c *Connection) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// Received and Sent return the bytes on the wire so far, including TLS.
func (c *Connection) Received() int64 { return c.conn.received.Load() }

// Sent is described with Received.
func (c *Connection) Sent() int64 { return c.conn.sent.Load() }

// Close ends all requests and waits for their handlers.
func (c *Connection) Close() {
	_ = c.conn.Close()
	<-c.ended
}

// read passes frames to the handlers until the connection ends.
func (c *Connection) read() {
	defer close(c.ended)
	for {
		frame, err := c.framer.ReadFrame()
		if err == nil {
			err = c.take(frame, time.Now())
		}
		if err == nil {
			continue
		}
		if stream := (http2.StreamError{}); errors.As(err, &stream) {
			c.end(stream.StreamID, err, time.Now())
			continue
		}
		c.fail(err)
		return
	}
}

func (c *Connection) take(frame http2.Frame, now time.Time) error {
	switch f := frame.(type) {
	case *http2.DataFrame:
		if handler := c.handler(f.StreamID); handler != nil && len(f.Data()) > 0 {
			handler.Body(f.Data(), now)
		}
		if f.StreamEnded() {
			c.end(f.StreamID, nil, now)
		}
		return c.widen(int(f.Length))
	case *http2.MetaHeadersFrame:
		if handler := c.handler(f.StreamID); handler != nil && f.PseudoValue("status") != "" {
			status, err := strconv.Atoi(f.PseudoValue("status"))
			if err != nil {
				return fmt.Errorf("read the status: %w", err)
			}
			handler.Head(status, now)
		}
		if f.StreamEnded() {
			c.end(f.StreamID, nil, now)
		}
	case *http2.RSTStreamFrame:
		c.end(f.StreamID, http2.StreamError{StreamID: f.StreamID, Code: f.ErrCode}, now)
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server closed the connection: %v", f.ErrCode)
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.write(func() error { return c.framer.WriteSettingsAck() })
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.write(func() error { return c.framer.WritePing(true, f.Data) })
		}
	}
	return nil
}

func (c *Connection) handler(id uint32) Handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[id]
}

func (c *Connection) end(id uint32, err error, at time.Time) {
	c.mu.Lock()
	handler := c.open[id]
	delete(c.open, id)
	c.mu.Unlock()
	if handler != nil {
		handler.End(err, at)
	}
}

func (c *Connection) fail(err error) {
	_ = c.conn.Close()
	c.mu.Lock()
	c.err = err
	open := c.open
	c.open = map[uint32]Handler{}
	c.mu.Unlock()
	now := time.Now()
	for _, handler := range open {
		handler.End(err, now)
	}
}

// widen increases the connection's window again. The windows of streams never run out.
func (c *Connection) widen(n int) error {
	c.unacknowledged += n
	if c.unacknowledged < refill {
		return nil
	}
	n, c.unacknowledged = c.unacknowledged, 0
	return c.write(func() error { return c.framer.WriteWindowUpdate(0, uint32(n)) })
}

func (c *Connection) write(frame func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return frame()
}

// countedConn counts the bytes of a connection.
type countedConn struct {
	net.Conn
	received, sent atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}
