// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Dashboard has what tests need of the dashboard's JSON.
type Dashboard struct {
	Templating struct {
		List []Variable `json:"list"`
	} `json:"templating"`
	Panels []Panel `json:"panels"`
}

// Variable is a variable of the dashboard: the data source, or the values of a label.
type Variable struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Query string `json:"query"`
}

// LabelValues returns the selector and the label of a query label_values(SELECTOR, LABEL), or empty strings for another.
func (v *Variable) LabelValues() (selector, label string) {
	match := labelValues.FindStringSubmatch(v.Query)
	if match == nil {
		return "", ""
	}
	return match[1], match[2]
}

var labelValues = regexp.MustCompile(`^label_values\((.+), *(\w+)\)$`)

// Panel is a panel, or the title of a row.
type Panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// MayBeEmpty reports whether the panel's description says when it has no data.
func (p *Panel) MayBeEmpty() bool { return strings.Contains(p.Description, "No data: ") }

// ReadDashboard reads dashboard.json in the repository at root.
func ReadDashboard(root string) (*Dashboard, error) {
	path := filepath.Join(root, Folder, "dashboard.json")
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var d Dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &d, nil
}

// WithValues replaces the dashboard's variables in an expression as Grafana does if all of these values are selected, and
// the interval of rates by window.
func WithValues(expr string, values map[string][]string, window string) string {
	pairs := []string{"$__rate_interval", window}
	for name, all := range values {
		pairs = append(pairs, "$"+name, "("+strings.Join(all, "|")+")")
	}
	return strings.NewReplacer(pairs...).Replace(expr)
}
