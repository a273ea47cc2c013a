// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Which changes of an object are delivered depends on those that the reader has received.
func TestChangeQueue(t *testing.T) {
	const read = "read"
	for name, c := range map[string]struct {
		acts []string // of one object: Updated, Dropped or read
		want []string
	}{
		"each change, to a reader that keeps up":    {[]string{"Updated", read, "Updated", read, "Dropped", read}, []string{"Updated", "Updated", "Dropped"}},
		"the newest, to one that does not":          {[]string{"Updated", "Updated", "Updated", read}, []string{"Updated"}},
		"no end of what it never heard of":          {[]string{"Updated", "Dropped", read}, nil},
		"the end of what it heard of":               {[]string{"Updated", read, "Updated", "Dropped", read}, []string{"Updated", "Dropped"}},
		"an end that was taken back is none":        {[]string{"Updated", read, "Dropped", "Updated", read}, []string{"Updated", "Updated"}},
		"no second end, if it came back in between": {[]string{"Updated", read, "Dropped", read, "Updated", "Dropped", read}, []string{"Updated", "Dropped"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newChangeQueue[sampled]()
			var got []string
			for _, act := range c.acts {
				if act != read {
					f.add("a", Change[sampled]{Type: ChangeType(act), Object: &sampled{}})
					continue
				}
				for change, ok := f.pop(); ok; change, ok = f.pop() {
					got = append(got, string(change.Type))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
