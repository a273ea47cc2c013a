// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// rows returns the table of docs/reference/version-states.md as the code has it.
func rows() []string {
	var rows []string
	for _, t := range transitions {
		var from []string
		for _, s := range t.From {
			from = append(from, string(s))
		}
		do := "waits"
		switch {
		case t.Do != "":
			do = string(t.Do)
		case t.text == nil && !t.paused:
			do = ""
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", strings.Join(from, ", "), t.On, do, cmp.Or(string(t.To), "stays")))
	}
	return rows
}

func TestDocumentedTransitions(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/version-states.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| state | observed | action | then |\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if !found {
		t.Fatal("the page has no table")
	}
	if diff := gocmp.Diff(rows(), strings.Split(table, "\n")); diff != "" {
		t.Errorf("docs/reference/version-states.md (-code +page):\n%s", diff)
	}
}
