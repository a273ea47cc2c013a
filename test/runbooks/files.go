// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package runbooks

import (
	"fmt"
	"strings"
)

// Files returns the contents, by path, of the files in a section of a page: its YAML blocks, each of which begins with
// a comment that is its path. The section is that of a second-level heading.
func Files(page, heading string) (map[string]string, error) {
	_, section, found := strings.Cut("\n"+page, "\n## "+heading+"\n")
	if !found {
		return nil, fmt.Errorf("there is no section %q", heading)
	}
	section, _, _ = strings.Cut("\n"+section, "\n## ")
	all, err := fences(section)
	if err != nil {
		return nil, fmt.Errorf("section %q: %w", heading, err)
	}
	files := map[string]string{}
	for _, f := range all {
		if f.kind != "yaml" {
			continue
		}
		first, _, _ := strings.Cut(f.content, "\n")
		path, isComment := strings.CutPrefix(first, "# ")
		switch {
		case !isComment || !strings.HasSuffix(path, ".yaml") || strings.Contains(path, " "):
			return nil, fmt.Errorf("section %q, line %d: the YAML block does not begin with a comment with its path, but with %q", heading, f.end, first)
		case files[path] != "":
			return nil, fmt.Errorf("section %q has %s twice", heading, path)
		}
		files[path] = f.content
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("section %q has no YAML block", heading)
	}
	return files, nil
}
