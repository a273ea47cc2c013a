// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEventsDocumented checks that docs/reference/events.md has exactly the reasons and actions of events that the
// operator's code names. Warnings with the reason of a condition have an action alone.
func TestEventsDocumented(t *testing.T) {
	var named, documented []string
	call := regexp.MustCompile(`(?:EventType\w+, |\brecord\([\w.]+, )(?:"(\w+)"|[\w.]+), "(\w+)"|\bEvent: "(\w+)"|\baction = "(\w+)"`)
	if err := filepath.WalkDir(root+"/controllers", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") {
			for _, match := range call.FindAllStringSubmatch(read(t, path), -1) {
				named = append(named, match[1:]...)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// A row has one or several names, and the first table an action beside them.
	cells := regexp.MustCompile("(?m)^\\| ([^|]*) \\|(?: `(\\w+)` \\|)?")
	for _, row := range cells.FindAllStringSubmatch(read(t, root+"/docs/reference/events.md"), -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, name[1])
		}
		documented = append(documented, row[2])
	}
	sorted := func(names []string) []string {
		slices.Sort(names)
		return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
	}
	if diff := cmp.Diff(sorted(named), sorted(documented)); diff != "" {
		t.Errorf("events (-code +page):\n%s", diff)
	}
}
