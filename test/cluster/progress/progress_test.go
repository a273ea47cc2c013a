// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReporter(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		terminal bool
		want     string
	}{
		"a log": {false, "[00:00] etcd                           building\n" +
			"[01:05] etcd                           42 packages\n" +
			"[71:05] etcd                           built in 1:10\n"},
		"a terminal": {true, "[00:00] etcd                           building\n" +
			"[01:05] etcd                           42 packages" +
			"\r\033[K[71:05] etcd                           built in 1:10\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			r := newReporter(&out, test.terminal, func() time.Time { return now })
			r.Say("etcd", "building")
			now = now.Add(65 * time.Second)
			r.Tick("etcd", "%d packages", 42)
			now = now.Add(70 * time.Minute)
			r.Say("etcd", "built in %s", "1:10")
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}
