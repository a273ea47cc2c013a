// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// recorded is the body of a real kubelet 1.37 with seven pods.
const recorded = "testdata/kubelet-1.37.txt"

var (
	seriesLine = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? (\S+)(?: (\d{13}))?$`)
	labelPair  = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// layout describes a body without its values: comments as they are, and for each family
// the names of its labels, and how its values and timestamps are written. Equal lines in
// succession are reported once.
func layout(t *testing.T, body string) []string {
	t.Helper()
	var all []string
	var before []string // label values of the previous line
	for line := range strings.Lines(body) {
		line, found := strings.CutSuffix(line, "\n")
		if !found {
			t.Errorf("the last line %q has no newline", line)
		}
		if strings.HasPrefix(line, "#") {
			all, before = append(all, line), nil
			continue
		}
		parts := seriesLine.FindStringSubmatch(line)
		if parts == nil {
			t.Errorf("line %q is not that of a kubelet", line)
			continue
		}
		var names, values []string
		for _, pair := range labelPair.FindAllStringSubmatch(parts[2], -1) {
			names, values = append(names, pair[1]), append(values, pair[2])
		}
		described := parts[1] + "{" + strings.Join(names, ",") + "} " + numberFormat(parts[3])
		if parts[4] != "" {
			described += ", milliseconds"
		}
		if slices.Compare(before, values) > 0 {
			described += ", not sorted"
		}
		before = values
		if all[len(all)-1] != described {
			all = append(all, described)
		}
	}
	return all
}

// numberFormat says how a value is written.
func numberFormat(text string) string {
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return "no number"
	case text == strconv.FormatFloat(v, 'g', -1, 64):
		return "shortest"
	}
	return "number " + text
}

func TestBodyIsLaidOutLikeARecordedOne(t *testing.T) {
	want, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	f, _ := newFleet(t, Options{ContainersPerPod: 3})
	for _, n := range f.Nodes() {
		got := n.AppendBody(nil, epoch.Add(time.Minute))
		if diff := cmp.Diff(layout(t, string(want)), layout(t, string(got))); diff != "" {
			t.Errorf("layout of %s (-recorded +fleet):\n%s", n.Name, diff)
		}
	}
}
