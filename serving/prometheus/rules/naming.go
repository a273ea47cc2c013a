// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// naming makes a metric's name of a series' name.
type naming struct {
	// matches is nil for all series, which keep their names if as is empty.
	matches *regexp.Regexp
	as      string
}

var everything = regexp.MustCompile(`.*`)

func compileNaming(spec v1alpha1.RuleName) (naming, *problem) {
	n := naming{matches: everything, as: spec.As}
	if spec.Matches != "" {
		matches, err := regexp.Compile(spec.Matches)
		if err != nil {
			return naming{}, invalidf(ReasonInvalidName, "name.matches is not a regular expression (RE2): %v", err)
		}
		n.matches = matches
	}
	if n.as == "" {
		switch n.matches.NumSubexp() {
		case 0:
			n.as = "$0"
		case 1:
			n.as = "$1"
		default:
			return naming{}, invalidf(ReasonInvalidName, "name.matches has %d groups: say in name.as what the name is made of, such as ${1}_per_second", n.matches.NumSubexp())
		}
		return n, nil
	}
	for _, ref := range references(n.as) {
		if !slices.Contains(n.matches.SubexpNames(), ref) && !isGroup(ref, n.matches.NumSubexp()) {
			return n, warnf(ReasonInvalidName, "name.as refers to $%s, which name.matches does not have, so it is left out: write braces around the group, such as ${1}_per_second", ref)
		}
	}
	return n, nil
}

// reference is how regexp.Expand reads a template.
var reference = regexp.MustCompile(`\$(?:\$|([0-9A-Za-z_]+)|\{([0-9A-Za-z_]+)\})`)

func references(as string) []string {
	var refs []string
	for _, m := range reference.FindAllStringSubmatch(as, -1) {
		if ref := m[1] + m[2]; ref != "" {
			refs = append(refs, ref)
		}
	}
	return refs
}

func isGroup(ref string, groups int) bool {
	i, err := strconv.Atoi(ref)
	return err == nil && i >= 0 && i <= groups
}

// name returns what the metric of a series is called; false where the rule is not
// about that series.
func (n naming) name(series string) (string, bool) {
	if n.matches == everything && n.as == "$0" {
		return series, true
	}
	match := n.matches.FindStringSubmatchIndex(series)
	if match == nil {
		return "", false
	}
	return string(n.matches.ExpandString(nil, n.as, series, match)), true
}

// checkMetricName says whether a metric can be asked for by a name. That of a metric of
// objects must be one part of a path as it stands (Custom Metrics API proposal, "Metric
// Names"); in that of an external metric slashes can be escaped, so it
// cannot hold the escape.
func checkMetricName(name string, external bool) error {
	switch {
	case name == "":
		return fmt.Errorf("the name is empty")
	case name == "." || name == "..":
		return fmt.Errorf("%q cannot be a part of a path", name)
	case strings.ContainsAny(name, "%?") || !external && strings.Contains(name, "/"):
		return fmt.Errorf("%q has a character that a metric's name cannot have: one of %%, / and ?", name)
	case external && strings.Contains(name, `\|`):
		return fmt.Errorf(`%s has \|, which is how clients write a slash: write the slash itself here`, name)
	}
	return nil
}
