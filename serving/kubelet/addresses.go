// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxHosts bounds the addresses that are tried: a node's status, which its kubelet writes,
// must not make serving connect to many hosts. Dual stack on two networks has four.
const maxHosts = 4

// hosts appends the node's usable addresses of the first of the preferred types that it has.
func (n *Node) hosts(hosts []string, preferred []corev1.NodeAddressType) []string {
	for _, wanted := range preferred {
		for _, a := range n.Addresses {
			if a.Type == wanted && len(hosts) < maxHosts && validAddress(a) && !slices.Contains(hosts, a.Address) {
				hosts = append(hosts, a.Address)
			}
		}
		if len(hosts) > 0 {
			break
		}
	}
	return hosts
}

// send sends the request to the hosts in turn until one can be connected to, and returns its
// response. It begins with the one that the last scrape connected to, so that only the first
// scrape pays for those that cannot be reached. An answer that is a failure ends it, too.
func (t *target) send(ctx context.Context, hosts []string, e endpoint, a *attempt, o *scrapeResult) (*http.Response, error) {
	if i := slices.Index(hosts, t.host); i > 0 {
		copy(hosts[1:], hosts[:i])
		hosts[0] = t.host
	}
	var failed error
	for i, host := range hosts {
		at := e.at(host)
		o.url, a.host = at.String(), host
		// As net.Dialer does for the addresses of a name: one that drops packets leaves time for the others.
		a.connectBy = time.Now().Add(time.Until(a.deadline) / time.Duration(len(hosts)-i))
		request := (&http.Request{
			Method: http.MethodGet,
			URL:    at,
			Host:   at.Host,
			Header: http.Header{"Accept": {acceptText}},
		}).WithContext(context.WithValue(ctx, attemptKey{}, a))
		// A RoundTripper does not follow redirects.
		response, err := a.settings.roundTripper.RoundTrip(request)
		dial, isDial := errors.AsType[*dialError](err)
		if !isDial {
			t.host = host
			return response, err
		}
		cause := dial.error
		if op, ok := errors.AsType[*net.OpError](cause); ok {
			cause = op.Err // without the address
		}
		cause = fmt.Errorf("%s %s: %w", ipFamily(host), host, cause)
		if i > 0 {
			cause = fmt.Errorf("%w; %w", failed, cause)
		}
		failed = cause
	}
	return nil, &connectError{failed}
}

// dialError is the error of an address that cannot be connected to.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// ipFamily names an address by its family, unless it is a name.
func ipFamily(host string) string {
	switch ip, err := netip.ParseAddr(host); {
	case err != nil:
		return "address"
	case ip.Unmap().Is4():
		return "IPv4 address"
	}
	return "IPv6 address"
}
