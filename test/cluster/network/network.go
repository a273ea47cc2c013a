// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network is the cluster's one bridge, the pods' CNI configuration, and what the kernel's settings
// and packet filter have to be put back to afterwards.
package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

const (
	// Bridge is the interface of the node and its pods.
	Bridge = "cni0"
	// CNIName is the network's name in CNI's records.
	CNIName = "metrics-backend-cluster"
)

// Addresses are those of a cluster, all of one family.
type Addresses struct {
	// Node is the node's, on the bridge; kube-apiserver and kubelet listen only there.
	Node string
	// Pods is the subnet of the node and the pods.
	Pods string
	// Services is the subnet of the Services, and APIServer the first of them: "kubernetes" in the namespace default.
	Services, APIServer string
	// all is the subnet of every address.
	all string
}

// AddressesOf returns those of a cluster of a family.
func AddressesOf(family state.IPFamily) Addresses {
	if family == state.IPv6 {
		return Addresses{
			Node: "fd00:10:244::1", Pods: "fd00:10:244::/64",
			Services: "fd00:10:96::/112", APIServer: "fd00:10:96::1", all: "::/0",
		}
	}
	return Addresses{
		Node: "10.244.0.1", Pods: "10.244.0.0/24",
		Services: "10.96.0.0/16", APIServer: "10.96.0.1", all: "0.0.0.0/0",
	}
}

// alias marks the bridge as of the cluster in one state directory: flannel and others call theirs cni0 too.
func alias(owner string) string { return "metrics-backend-cluster in " + owner }

// hardware is fixed, or the bridge would take its lowest port's address and change it as pods come and go.
var hardware = net.HardwareAddr{0x02, 0x6d, 0x62, 0x6f, 0x00, 0x01}

// ErrForeignBridge says that another network uses the name.
var ErrForeignBridge = errors.New("the network interface " + Bridge + " is not of this cluster (flannel, k3s or a cluster in another state directory made it); end that first")

// EnsureBridge makes the bridge with the node's address for the cluster in the state directory owner. made
// is false where it was there.
func EnsureBridge(owner string, addresses Addresses) (made bool, err error) {
	link, err := find(owner)
	if err != nil {
		return false, err
	}
	if link == nil {
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.HardwareAddr = Bridge, hardware
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
			return false, fmt.Errorf("adding the bridge %s: %w", Bridge, err)
		}
		made = true
		if link, err = netlink.LinkByName(Bridge); err != nil {
			return false, fmt.Errorf("finding the bridge %s: %w", Bridge, err)
		}
		if err := netlink.LinkSetAlias(link, alias(owner)); err != nil {
			return false, fmt.Errorf("marking the bridge %s: %w", Bridge, err)
		}
	}
	_, subnet, err := net.ParseCIDR(addresses.Pods)
	if err != nil {
		return false, err
	}
	// Without a port the kernel could not detect duplicates of an IPv6 address, which cannot be used until it has.
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(addresses.Node), Mask: subnet.Mask}, Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrReplace(link, address); err != nil {
		return false, fmt.Errorf("giving %s the address %s: %w", Bridge, addresses.Node, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return false, fmt.Errorf("setting %s up: %w", Bridge, err)
	}
	return made, nil
}

// HaveBridge says whether the owner's bridge is there; ErrForeignBridge where another's is.
func HaveBridge(owner string) (bool, error) {
	link, err := find(owner)
	return link != nil, err
}

// RemoveBridge removes the owner's bridge and what pods left on it.
func RemoveBridge(owner string) error {
	link, err := find(owner)
	if err != nil || link == nil {
		return err
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing network interfaces: %w", err)
	}
	for _, port := range links {
		if port.Attrs().MasterIndex != link.Attrs().Index {
			continue
		}
		// A pod's network namespace that has just ended takes its end with it at any moment.
		if err := netlink.LinkDel(port); err != nil && !gone(port) {
			return fmt.Errorf("removing the pod interface %s: %w", port.Attrs().Name, err)
		}
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("removing the bridge %s: %w", Bridge, err)
	}
	return nil
}

func gone(link netlink.Link) bool {
	_, err := netlink.LinkByIndex(link.Attrs().Index)
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound)
}

// find returns the owner's bridge, nil where there is none, and ErrForeignBridge for another's.
func find(owner string) (netlink.Link, error) {
	link, err := netlink.LinkByName(Bridge)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the bridge %s: %w", Bridge, err)
	}
	have := link.Attrs()
	// With our hardware address and no alias it is of a run that was killed before it was marked.
	unmarked := have.Alias == "" && have.HardwareAddr.String() == hardware.String()
	if have.Alias != alias(owner) && !unmarked {
		return nil, ErrForeignBridge
	}
	return link, nil
}

// CNIConfig is the pods' network: an interface on the bridge and an address, recorded below folder.
func CNIConfig(folder string, addresses Addresses) ([]byte, error) {
	content, err := json.MarshalIndent(map[string]any{
		"cniVersion": "0.4.0",
		"name":       CNIName,
		"plugins": []any{map[string]any{
			"type":        "bridge",
			"bridge":      Bridge,
			"hairpinMode": true,
			"ipam": map[string]any{
				"type":    "host-local",
				"dataDir": folder,
				"ranges":  [][]any{{map[string]any{"subnet": addresses.Pods, "gateway": addresses.Node}}},
				"routes":  []any{map[string]any{"dst": addresses.all}},
			},
		}},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the CNI configuration: %w", err)
	}
	return append(content, '\n'), nil
}
