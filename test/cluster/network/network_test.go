// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

func TestParseTables(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		out  string
		want []string
	}{
		"none":    {"", []string{}},
		"several": {"table ip kube-proxy\ntable ip6 kube-proxy\ntable inet filter\n", []string{"ip kube-proxy", "ip6 kube-proxy", "inet filter"}},
		"noise":   {"# Warning: table ip nat is managed by iptables-nft, do not touch!\ntable ip nat\n", []string{"ip nat"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, parseTables(test.out)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHasRules(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		listing string
		want    bool
	}{
		"empty table": {"table ip nat {\n}\n", false},
		"only chains": {"table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n\n\tchain X {\n\t}\n}\n", false},
		"a rule":      {"table ip nat {\n\tchain POSTROUTING {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n\t\toifname \"eth0\" masquerade\n\t}\n}\n", true},
		"a set":       {"table ip x {\n\tset y {\n\t\ttype ipv4_addr\n\t}\n}\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := hasRules(test.listing); got != test.want {
				t.Fatalf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestSysctlsArePutBackAndOthersLeftAlone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	// A kernel without the keyring has no such settings; that is no error.
	before := map[string]string{"net/ipv4/ip_forward": "0", "kernel/panic": "1"}
	for name, value := range before {
		put(t, root, name, value+"\n")
	}
	values, err := readSysctls(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, values); diff != "" {
		t.Fatalf("read (-want +got):\n%s", diff)
	}
	put(t, root, "net/ipv4/ip_forward", "1\n")
	put(t, root, "kernel/hostname", "mine")
	values["kernel/hostname"] = "another's"
	if err := restoreSysctls(root, values); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"net/ipv4/ip_forward": "0", "kernel/panic": "1\n", "kernel/hostname": "mine"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || string(content) != want {
			t.Errorf("%s: %q, %v, want %q", name, content, err, want)
		}
	}
}

func put(t *testing.T, root, name, value string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCNIConfig(t *testing.T) {
	t.Parallel()
	content, err := CNIConfig("/var/lib/c/cni/addresses", AddressesOf(state.IPv4))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Name    string
		Plugins []struct {
			Type, Bridge string
			IPAM         struct {
				Type, DataDir string
				Ranges        [][]struct{ Subnet, Gateway string }
			}
		}
	}
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	plugin := list.Plugins[0]
	if list.Name != CNIName || plugin.Bridge != Bridge || plugin.IPAM.DataDir != "/var/lib/c/cni/addresses" ||
		plugin.IPAM.Ranges[0][0].Gateway != "10.244.0.1" {
		t.Fatalf("got %s", content)
	}
	// The cleanup recognizes results by the name, which ends at the first dash after it.
	if strings.Contains(plugin.Type, "-") {
		t.Fatalf("plugin %q", plugin.Type)
	}
}
