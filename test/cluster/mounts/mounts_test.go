// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

func TestBelow(t *testing.T) {
	t.Parallel()
	const table = `27 1 254:0 / / rw - ext4 /dev/vda rw
50 27 0:50 / /var/lib/cluster rw - tmpfs tmpfs rw
51 27 0:51 / /var/lib/cluster/containerd/rootfs rw - overlay overlay rw
52 27 0:4 net:[4026532281] /var/lib/cluster/containerd/netns/cni-1 rw shared:9 - nsfs nsfs rw
53 27 0:53 / /var/lib/cluster-2/kubelet rw - tmpfs tmpfs rw
54 27 0:54 / /var/lib/cluster/kubelet/a\040volume rw - tmpfs tmpfs rw
55 27 0:55 / /var/lib/cluster/kubelet/old//deleted rw - tmpfs tmpfs rw
`
	for name, test := range map[string]struct {
		directory string
		want      []string
	}{
		"ours, the youngest first, not the directory itself, nor a neighbour": {"/var/lib/cluster", []string{
			"/var/lib/cluster/kubelet/old",
			"/var/lib/cluster/kubelet/a volume",
			"/var/lib/cluster/containerd/netns/cni-1",
			"/var/lib/cluster/containerd/rootfs",
		}},
		"with a slash":  {"/var/lib/cluster-2/", []string{"/var/lib/cluster-2/kubelet"}},
		"nothing there": {"/var/lib/other", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := mountinfo.GetMountsFromReader(strings.NewReader(table), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, below(all, test.directory)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}
