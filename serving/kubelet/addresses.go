// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
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
	var failed unreachableError
	for i, host := range hosts {
		at := e.at(host)
		o.url, a.host, a.connectBy = at.String(), host, time.Time{}
		if left := len(hosts) - i; left > 1 {
			// As net.Dialer does for the addresses of a name.
			a.connectBy = time.Now().Add(time.Until(a.deadline) / time.Duration(left))
		}
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
		failed = append(failed, hostError{host, dial.error})
	}
	return nil, &connectError{failed}
}

// connectContext returns the context for connecting in an attempt: where other addresses
// remain, one that drops packets must leave time for them.
func connectContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok && !a.connectBy.IsZero() {
		return context.WithDeadline(ctx, a.connectBy)
	}
	return ctx, func() {}
}

// dialError is the error of an address that cannot be connected to.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// unreachableError has the errors of all addresses that were tried.
type unreachableError []hostError

type hostError struct {
	host string
	err  error
}

// Error names each address with its family.
func (e unreachableError) Error() string {
	var parts []string
	for _, tried := range e {
		err := tried.err
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err // without the address
		}
		parts = append(parts, strings.TrimSpace(ipFamily(tried.host)+" address ")+" "+tried.host+": "+err.Error())
	}
	return strings.Join(parts, "; ")
}

func (e unreachableError) Unwrap() []error {
	var all []error
	for _, tried := range e {
		all = append(all, tried.err)
	}
	return all
}

// missingFamily returns the family of all addresses if this pod has no network of it, the
// reason of that failure, and else "".
func (e unreachableError) missingFamily() (string, v1alpha1.ScrapeReason) {
	for _, tried := range e {
		unreachable := errors.Is(tried.err, syscall.ENETUNREACH) || errors.Is(tried.err, syscall.EADDRNOTAVAIL) || errors.Is(tried.err, syscall.EAFNOSUPPORT)
		if !unreachable || ipFamily(tried.host) != ipFamily(e[0].host) {
			return "", ""
		}
	}
	switch name := ipFamily(e[0].host); name {
	case "IPv4":
		return name, v1alpha1.ScrapeNoIPv4
	case "IPv6":
		return name, v1alpha1.ScrapeNoIPv6
	}
	return "", ""
}

// ipFamily returns the family of an IP address, and "" for a name.
func ipFamily(host string) string {
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return ""
	case ip.Unmap().Is4():
		return "IPv4"
	}
	return "IPv6"
}
