// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// gridWidth is that of Grafana's grid.
const gridWidth = 24

// TestDashboard checks what Grafana does not complain about: panels that overlap or leave the grid, two with one id, a
// fixed data source, no unit or no query.
func TestDashboard(t *testing.T) {
	d := mustDashboard(t)
	if first := d.Templating.List[0]; first.Type != "datasource" || first.Name != "datasource" {
		t.Errorf("the first variable is %s %s, not the data source", first.Type, first.Name)
	}
	cells, ids, titles := map[string]string{}, map[int]string{}, map[string]bool{}
	rows := 0
	for _, p := range d.Panels {
		if other := ids[p.ID]; p.ID == 0 || other != "" {
			t.Errorf("%s has the id %d, as %q", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		if p.Title == "" || titles[p.Title] {
			t.Errorf("the title %q is there twice, or empty", p.Title)
		}
		titles[p.Title] = true
		if p.GridPos.X+p.GridPos.W > gridWidth || p.GridPos.W <= 0 || p.GridPos.H <= 0 {
			t.Errorf("%s leaves the grid: %+v", p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := fmt.Sprint(p.GridPos.X+x, " ", p.GridPos.Y+y)
				if cells[cell] != "" {
					t.Fatalf("%s and %s overlap", p.Title, cells[cell])
				}
				cells[cell] = p.Title
			}
		}
		if p.Type == "row" {
			rows++
			continue
		}
		if p.Datasource.UID != "${datasource}" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%s has the data source %q, the unit %q and %d queries", p.Title, p.Datasource.UID, p.FieldConfig.Defaults.Unit, len(p.Targets))
		}
	}
	if rows != 5 {
		t.Errorf("%d rows", rows)
	}
}

// TestDashboardVariables: each variable has values of a label, and is used; what looks like a variable is one.
func TestDashboardVariables(t *testing.T) {
	d := mustDashboard(t)
	defined, used := map[string]bool{"__rate_interval": true}, map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List[1:] {
		defined[v.Name] = true
		if _, label := v.LabelValues(); label == "" {
			t.Errorf("the variable %s has the query %q", v.Name, v.Query)
		}
	}
	variable := regexp.MustCompile(`\$(\w+)`)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			for _, use := range variable.FindAllStringSubmatch(target.Expr, -1) {
				used[use[1]] = true
			}
		}
	}
	if diff := cmp.Diff(defined, used); diff != "" {
		t.Errorf("variables (-defined +used):\n%s", diff)
	}
}

func mustDashboard(t *testing.T) *Dashboard {
	t.Helper()
	d, err := ReadDashboard(root)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
