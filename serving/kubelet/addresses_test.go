// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// refused is the error of net.Dialer if a connection fails at once.
func refused(address string, errno syscall.Errno) error {
	addr, _ := net.ResolveTCPAddr("tcp", address)
	return &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: os.NewSyscallError("connect", errno)}
}

func dualStackNode(addresses ...string) *Node {
	n := &Node{Name: "n1", UID: "uid-1"}
	for _, address := range addresses {
		n.Addresses = append(n.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return n
}

// A node's addresses are tried in turn where one cannot be connected to, and the one that works
// comes first in the next scrape.
func TestAddressesInTurn(t *testing.T) {
	const v4, v6, other = "192.0.2.1:10250", "[2001:db8::1]:10250", "192.0.2.2:10250"
	ca := newAuthority(t)
	tests := map[string]struct {
		node    *Node
		errnos  map[string]syscall.Errno
		reason  v1alpha1.ScrapeReason
		says    string
		url     string
		first   string
		another string
	}{
		"IPv6 first, and no IPv6": {
			node: dualStackNode("2001:db8::1", "192.0.2.1"), errnos: map[string]syscall.Errno{v6: syscall.ENETUNREACH},
			url: "https://192.0.2.1:10250/metrics/resource", first: v6 + " " + v4, another: v4,
		},
		"IPv4 first, and no IPv4": {
			node: dualStackNode("192.0.2.1", "2001:db8::1"), errnos: map[string]syscall.Errno{v4: syscall.ENETUNREACH},
			url: "https://[2001:db8::1]:10250/metrics/resource", first: v4 + " " + v6, another: v6,
		},
		"the first answers": {
			node: dualStackNode("2001:db8::1", "192.0.2.1"),
			url:  "https://[2001:db8::1]:10250/metrics/resource", first: v6, another: v6,
		},
		"none answers": {
			node: dualStackNode("2001:db8::1", "192.0.2.1"), errnos: map[string]syscall.Errno{v6: syscall.ENETUNREACH, v4: syscall.ECONNREFUSED},
			reason: v1alpha1.ScrapeConnectionFailed, url: "https://192.0.2.1:10250/metrics/resource", first: v6 + " " + v4, another: v6 + " " + v4,
			says: "from the serving pods: IPv6 address 2001:db8::1: connect: network is unreachable; IPv4 address 192.0.2.1: connect: connection refused",
		},
		"IPv6 only, and no IPv6": {
			node: dualStackNode("2001:db8::1"), errnos: map[string]syscall.Errno{v6: syscall.ENETUNREACH},
			reason: v1alpha1.ScrapeConnectionFailed, url: "https://[2001:db8::1]:10250/metrics/resource", first: v6, another: v6,
			says: "IPv6 address 2001:db8::1: connect: network is unreachable",
		},
		"IPv4 only, and no IPv4": {
			node: dualStackNode("192.0.2.1", "192.0.2.2"), errnos: map[string]syscall.Errno{v4: syscall.EADDRNOTAVAIL, other: syscall.ENETUNREACH},
			reason: v1alpha1.ScrapeConnectionFailed, url: "https://192.0.2.2:10250/metrics/resource", first: v4 + " " + other, another: v4 + " " + other,
			says: "IPv4 address 192.0.2.1: connect: cannot assign requested address; IPv4 address 192.0.2.2: connect: network is unreachable",
		},
		"refused": {
			node: dualStackNode("192.0.2.1"), errnos: map[string]syscall.Errno{v4: syscall.ECONNREFUSED},
			reason: v1alpha1.ScrapeConnectionFailed, url: "https://192.0.2.1:10250/metrics/resource", first: v4, another: v4,
			says: "IPv4 address 192.0.2.1: connect: connection refused",
		},
		"a certificate for another address ends it": {
			node: dualStackNode("192.0.2.2", "192.0.2.1"), reason: v1alpha1.ScrapeCertificateUntrusted,
			url: "https://192.0.2.2:10250/metrics/resource", first: other, another: other, says: "for another address",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1", "2001:db8::1"), serve(nodeBody))
			var dialed []string
			s := newTestSource(t, clock.RealClock{}, ca.pem, func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed = append(dialed, address)
				if errno := tt.errnos[address]; errno != 0 {
					return nil, refused(address, errno)
				}
				return kubelet.dial(ctx, network, address)
			}, testSettings())
			for _, want := range []string{tt.first, tt.another} {
				dialed = nil
				o := s.scrapeOnce(t.Context(), tt.node)
				checkFailure(t, o, tt.reason, tt.says)
				if diff := cmp.Diff([]string{want, tt.url}, []string{strings.Join(dialed, " "), o.url}); diff != "" {
					t.Errorf("connected to, and URL (-want +got):\n%s", diff)
				}
				s.targets["n1"].connection.closeIdle()
			}
		})
	}
}

// An address that drops packets leaves time for the next one, and costs it once.
func TestAddressThatDropsPackets(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		var dialed []string
		cfg := testSettings()
		cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
		s := newTestSource(t, clock.RealClock{}, nil, func(ctx context.Context, _, address string) (net.Conn, error) {
			dialed = append(dialed, address)
			if strings.HasPrefix(address, "[") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			client, server := net.Pipe()
			go answerOnce(tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate}}), response(nodeBody))
			return client, nil
		}, cfg)
		var got []string
		for range 2 {
			begin := time.Now()
			o := s.scrapeOnce(t.Context(), dualStackNode("2001:db8::1", "192.0.2.1"))
			checkFailure(t, o, "", "")
			got = append(got, strings.Join(dialed, " ")+" "+time.Since(begin).String())
			dialed = nil
			s.targets["n1"].connection.closeIdle()
		}
		if diff := cmp.Diff([]string{"[2001:db8::1]:10250 192.0.2.1:10250 5s", "192.0.2.1:10250 0s"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// All drop packets: the scrape ends in time.
		begin := time.Now()
		o := s.scrapeOnce(t.Context(), dualStackNode("2001:db8::1", "2001:db8::2", "2001:db8::3"))
		checkFailure(t, o, v1alpha1.ScrapeTimeout, "IPv6 address 2001:db8::3: ")
		if took := time.Since(begin); took != cfg.Timeout {
			t.Errorf("the scrape took %s, want %s", took, cfg.Timeout)
		}
	})
}

// answerOnce answers one request, and closes the connection when the client does.
func answerOnce(conn net.Conn, answer string) {
	defer func() { _ = conn.Close() }()
	buffer := make([]byte, 4<<10)
	if _, err := conn.Read(buffer); err != nil {
		return
	}
	_, _ = conn.Write([]byte(answer))
	_, _ = conn.Read(buffer)
}
