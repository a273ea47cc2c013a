// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// sysctls are those that the cluster changes: the first of its IP family by us, the others by the kubelet.
var sysctls = []string{
	"net/ipv4/ip_forward",
	"net/ipv6/conf/all/forwarding",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
	"kernel/panic",
	"kernel/panic_on_oops",
	"kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

const sysctlRoot = "/proc/sys"

// ReadSysctls returns the present values of what the cluster will change.
func ReadSysctls() (map[string]string, error) { return readSysctls(sysctlRoot) }

func readSysctls(root string) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range sysctls {
		content, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the kernel setting %s: %w", name, err)
		}
		values[name] = strings.TrimSpace(string(content))
	}
	return values, nil
}

// Forward lets the node pass packets between pods and Services.
func Forward(family state.IPFamily) error {
	if family == state.IPv6 {
		return writeSysctl(sysctlRoot, sysctls[1], "1")
	}
	return writeSysctl(sysctlRoot, sysctls[0], "1")
}

// RestoreSysctls puts the values back. Others than those that the cluster changes are left alone.
func RestoreSysctls(values map[string]string) error { return restoreSysctls(sysctlRoot, values) }

func restoreSysctls(root string, values map[string]string) error {
	now, err := readSysctls(root)
	if err != nil {
		return err
	}
	var failed error
	for _, name := range sysctls {
		if value, ok := values[name]; ok && value != now[name] {
			failed = errors.Join(failed, writeSysctl(root, name, value))
		}
	}
	return failed
}

func writeSysctl(root, name, value string) error {
	if err := os.WriteFile(filepath.Join(root, name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting the kernel setting %s to %s: %w", name, value, err)
	}
	return nil
}

// proxyTables are kube-proxy's in nftables mode.
var proxyTables = []string{"ip kube-proxy", "ip6 kube-proxy"}

// Tables lists the nftables tables, as "family name".
func Tables(ctx context.Context) ([]string, error) {
	out, err := nft(ctx, "list", "tables")
	if err != nil {
		return nil, err
	}
	return parseTables(out), nil
}

func parseTables(out string) []string {
	tables := []string{}
	for line := range strings.Lines(out) {
		if table, ok := strings.CutPrefix(strings.TrimSpace(line), "table "); ok {
			tables = append(tables, table)
		}
	}
	return tables
}

// RemoveTables removes kube-proxy's tables, and those that appeared since before was read and hold no rule:
// the iptables program makes such when it only looks for something. Where nil is known of before, only
// kube-proxy's go.
func RemoveTables(ctx context.Context, before []string) error {
	now, err := Tables(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, table := range now {
		if slices.Contains(before, table) {
			continue
		}
		if !slices.Contains(proxyTables, table) {
			if before == nil {
				continue
			}
			content, err := nft(ctx, append([]string{"list", "table"}, strings.Fields(table)...)...)
			if err != nil || hasRules(content) {
				continue
			}
		}
		_, err := nft(ctx, append([]string{"delete", "table"}, strings.Fields(table)...)...)
		failed = errors.Join(failed, err)
	}
	return failed
}

// hasRules says whether a listed table holds more than chains and their hooks.
func hasRules(listing string) bool {
	for line := range strings.Lines(listing) {
		line = strings.TrimSpace(line)
		if line == "" || line == "}" || strings.HasSuffix(line, "{") || strings.HasPrefix(line, "#") ||
			strings.HasPrefix(line, "type ") && strings.Contains(line, " hook ") {
			continue
		}
		return true
	}
	return false
}

func nft(ctx context.Context, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// ForgetConnections removes the kernel's records of the pods' connections.
func ForgetConnections(ctx context.Context, family state.IPFamily) error {
	for _, direction := range []string{"--orig-src", "--orig-dst"} {
		out, err := exec.CommandContext(ctx, "conntrack", "-D", "-f", strings.ToLower(string(cmp.Or(family, state.IPv4))), direction, AddressesOf(family).Pods).CombinedOutput()
		// It exits with 1 where it found none.
		if err != nil && !strings.Contains(string(out), "0 flow entries") {
			return fmt.Errorf("forgetting the pods' connections: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
