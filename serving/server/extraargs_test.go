// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExtraArgs compares the flags that the rule of spec.serving.extraArgs allows with those in its
// description, and with the flags that serving has.
func TestExtraArgs(t *testing.T) {
	content, err := os.ReadFile("../../api/v1alpha1/serving.go")
	if err != nil {
		t.Fatal(err)
	}
	flagsBetween := func(start, end string) []string {
		_, text, found := strings.Cut(string(content), start)
		text, _, ended := strings.Cut(text, end)
		if !found || !ended {
			t.Fatalf("nothing between %q and %q", start, end)
		}
		return slices.Sorted(slices.Values(regexp.MustCompile(`--[a-z0-9-]+`).FindAllString(text, -1)))
	}
	allowed := flagsBetween(".replace('_', '-') in [", "]")
	if diff := cmp.Diff(allowed, flagsBetween("Allowed are flags of", "Others are rejected")); diff != "" {
		t.Errorf("flags (-rule +description):\n%s", diff)
	}
	flags := NewOptions().Flags()
	for _, name := range allowed {
		if !slices.ContainsFunc(flags.Order, func(set string) bool { return flags.FlagSets[set].Lookup(name[2:]) != nil }) {
			t.Errorf("serving has no flag %s", name)
		}
	}
}
