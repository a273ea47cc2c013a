// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
)

// TestCoalescingConn starts a goroutine before each write, which a small write must let run. The
// scheduler does not promise that, so most writes count.
func TestCoalescingConn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, tc := range map[string]struct {
		size  int
		large bool // the write before it
		waits bool
	}{
		"event":                    {size: 600, waits: true},
		"full buffer":              {size: fullWrite},
		"end of a large frame":     {size: 31, large: true},
		"full buffer after a full": {size: fullWrite, large: true},
	} {
		t.Run(name, func(t *testing.T) {
			const writes = 100
			var ran atomic.Bool
			waited := 0
			c := &coalescingConn{Conn: writing{before: func() {
				if ran.Load() {
					waited++
				}
			}}}
			for range writes {
				c.large = tc.large
				ran.Store(false)
				done := make(chan struct{})
				go func() {
					ran.Store(true)
					close(done)
				}()
				if n, err := c.Write(make([]byte, tc.size)); n != tc.size || err != nil {
					t.Fatalf("wrote %d bytes: %v", n, err)
				}
				<-done
			}
			if got := waited > writes/2; got != tc.waits {
				t.Errorf("%d of %d writes waited for another goroutine, want most: %v", waited, writes, tc.waits)
			}
		})
	}
}

// writing is a connection that calls a function before each write, which is discarded if Conn is nil.
type writing struct {
	net.Conn
	before func()
}

func (w writing) Write(p []byte) (int, error) {
	w.before()
	if w.Conn != nil {
		return w.Conn.Write(p)
	}
	return len(p), nil
}
