// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// egressProxy is an HTTP CONNECT proxy on a Unix socket, through which
// kube-apiserver reaches "pods" at addresses that no network of this machine has.
type egressProxy struct {
	path     string
	listener net.Listener

	mu      sync.Mutex
	closed  func(address string) bool
	drops   bool                // instead of an answer
	tunnels map[net.Conn]string // to which address
	dropped []net.Conn
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func startEgressProxy(path string, dial dialFunc) (*egressProxy, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	p := &egressProxy{path: path, listener: listener, closed: none, tunnels: map[net.Conn]string{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go p.tunnel(conn, dial)
			}
		}
	}()
	return p, nil
}

func (p *egressProxy) close() { _ = p.listener.Close() }

// closeTo closes kube-apiserver's way to the addresses, HOST:PORT, that match, and opens it to
// the others. Connections that it keeps for later requests end, too.
func (p *egressProxy) closeTo(closed func(address string) bool) { p.set(closed, false) }

// dropTo is closeTo by a firewall that drops packets: kube-apiserver gets no answer.
func (p *egressProxy) dropTo(closed func(address string) bool) { p.set(closed, true) }

func (p *egressProxy) set(closed func(address string) bool, drops bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed, p.drops = closed, drops
	for _, conn := range p.dropped {
		_ = conn.Close()
	}
	p.dropped = nil
	for conn, address := range p.tunnels {
		if closed(address) {
			_ = conn.Close()
		}
	}
}

func none(string) bool { return false }

// open tells whether a tunnel may be made, and if so registers it for closeTo. If packets
// are dropped, it first waits until kube-apiserver gives up.
func (p *egressProxy) open(conn net.Conn, address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed(address) {
		p.tunnels[conn] = address
		return true
	}
	if p.drops {
		p.dropped = append(p.dropped, conn)
		p.mu.Unlock()
		_, _ = io.Copy(io.Discard, conn)
		p.mu.Lock()
	}
	return false
}

func (p *egressProxy) ended(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tunnels, conn)
}

func (p *egressProxy) tunnel(conn net.Conn, dial dialFunc) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	request, err := http.ReadRequest(reader)
	if err != nil || request.Method != http.MethodConnect {
		return
	}
	if !p.open(conn, request.Host) {
		_, _ = io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer p.ended(conn)
	target, err := dial(context.Background(), "tcp", request.Host)
	if err != nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer func() { _ = target.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(target, reader); _ = target.Close() })
	both.Go(func() { _, _ = io.Copy(conn, target); _ = conn.Close() })
	both.Wait()
}

// dialAdvertised routes connections to the advertised addresses of kube-apiservers
// to where they really listen.
func dialAdvertised(host string) dialFunc {
	real, err := url.Parse(host)
	address := host
	if err == nil && real.Host != "" {
		address = real.Host
	}
	return func(ctx context.Context, network, wanted string) (net.Conn, error) {
		switch name, _, err := net.SplitHostPort(wanted); {
		case err == nil && name == advertised:
			wanted = address
		case err == nil && name == advertisedSecond:
			wanted = listensSecond(address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, wanted)
	}
}
