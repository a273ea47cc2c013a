// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package runbooks

import (
	"fmt"
	"strings"
)

// Section returns the text below a second-level heading of a page.
func Section(page, heading string) (string, error) {
	_, section, found := strings.Cut("\n"+page, "\n## "+heading+"\n")
	if !found {
		return "", fmt.Errorf("there is no section %q", heading)
	}
	section, _, _ = strings.Cut("\n"+section, "\n## ")
	return section, nil
}

// Files returns the contents, by path, of the files in a section: its YAML blocks, each of which begins with a comment
// that is its path.
func Files(section string) (map[string]string, error) {
	all, err := yamlFences(section)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, f := range all {
		first, _, _ := strings.Cut(f.content, "\n")
		path, isComment := strings.CutPrefix(first, "# ")
		switch {
		case !isComment || !strings.HasSuffix(path, ".yaml") || strings.Contains(path, " "):
			return nil, fmt.Errorf("line %d: the YAML block does not begin with a comment with its path, but with %q", f.end, first)
		case files[path] != "":
			return nil, fmt.Errorf("%s is there twice", path)
		}
		files[path] = f.content
	}
	return files, nil
}
